"""Programs that leave a file which only looks like a plot from afar; `{file}` is its name."""

BLANK = """
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
plt.figure()
plt.savefig('{file}')
"""
EMPTY_AXES = """
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt
plt.plot([], [])
plt.savefig('{file}')
"""
