"""Ordinary work with data libraries, all of which must go on working."""

from __future__ import annotations

from bench.escape_suite.program import Benign

SOURCES: dict[str, tuple[str, str]] = {
    "pandas groupby": (
        "pandas",
        "import pandas as pd\nd = pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]}); assert d.groupby('k').v.sum().tolist() == [3, 3]",
    ),
    "pandas csv": (
        "pandas",
        "import pandas as pd\nd = pd.DataFrame({'a': range(1000)}); d.to_csv('d.csv', index=False); assert pd.read_csv('d.csv').a.sum() == 499500",
    ),
    "pandas dates": (
        "pandas",
        "import pandas as pd\ns = pd.Series(range(48), index=pd.date_range('2026-01-01', periods=48, freq='h', tz='Europe/Warsaw')); assert len(s.resample('D').sum()) == 2",
    ),
    "excel": (
        "openpyxl",
        "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_excel('d.xlsx', index=False); assert pd.read_excel('d.xlsx').a.sum() == 3",
    ),
    "excel by calamine": (
        "python_calamine",
        "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_excel('d.xlsx', index=False); assert pd.read_excel('d.xlsx', engine='calamine').a.sum() == 3",
    ),
    "parquet": (
        "pyarrow",
        "import pandas as pd\npd.DataFrame({'a': range(10)}).to_parquet('d.parquet'); assert pd.read_parquet('d.parquet').a.sum() == 45",
    ),
    "arrow": (
        "pyarrow",
        "import pyarrow as pa, pyarrow.compute as pc\nassert pc.sum(pa.array(range(10))).as_py() == 45\nwith pa.OSFile('x.arrow', 'wb') as f, pa.ipc.new_file(f, pa.schema([('a', pa.int64())])) as w: w.write(pa.record_batch([pa.array([1])], ['a']))\nassert pa.ipc.open_file(pa.memory_map('x.arrow')).read_all().num_rows == 1",
    ),
    "numpy algebra": (
        "numpy",
        "import numpy as np\na = np.random.default_rng(0).random((300, 300)); assert np.allclose(a @ np.linalg.inv(a), np.eye(300))",
    ),
    "numpy files": (
        "numpy",
        "import numpy as np\nnp.save('a.npy', np.arange(1000)); m = np.load('a.npy', mmap_mode='r'); assert m.sum() == 499500\nw = np.memmap('b', 'i4', 'w+', shape=10); w[:] = 1; w.flush()",
    ),
    "scipy": (
        "scipy",
        "from scipy import optimize, stats\nassert abs(optimize.brentq(lambda x: x * x - 2, 0, 2) ** 2 - 2) < 1e-6 and stats.norm.cdf(0) == 0.5",
    ),
    "a regression": (
        "sklearn",
        "import numpy as np\nfrom sklearn.linear_model import LinearRegression\nx = np.arange(20).reshape(-1, 1); assert abs(LinearRegression().fit(x, 3 * x[:, 0]).coef_[0] - 3) < 1e-9",
    ),
    "a forest on two cores": (
        "sklearn",
        "from sklearn.datasets import make_classification\nfrom sklearn.ensemble import RandomForestClassifier\nx, y = make_classification(200, random_state=0); assert RandomForestClassifier(20, n_jobs=2, random_state=0).fit(x, y).score(x, y) > 0.9",
    ),
    "cross validation by processes": (
        "sklearn",
        "from joblib import Parallel, delayed\nfrom math import sqrt\nassert Parallel(n_jobs=2)(delayed(sqrt)(i * i) for i in range(4)) == [0, 1, 2, 3]",
    ),
    "a figure": (
        "matplotlib",
        "import matplotlib; matplotlib.use('Agg')\nimport matplotlib.pyplot as plt, os\nplt.plot([1, 2, 3]); plt.title('zażółć'); plt.savefig('f.png'); plt.savefig('f.svg'); plt.savefig('f.pdf'); assert os.path.getsize('f.png') > 1000",
    ),
    "seaborn": (
        "seaborn",
        "import matplotlib; matplotlib.use('Agg')\nimport pandas as pd, seaborn as sns\nsns.barplot(pd.DataFrame({'a': list('xy'), 'b': [1, 2]}), x='a', y='b').figure.savefig('s.png')",
    ),
    "statsmodels": (
        "statsmodels",
        "import numpy as np, statsmodels.api as sm\nx = np.arange(30.0); assert abs(sm.OLS(2 * x + 1, sm.add_constant(x)).fit().params[1] - 2) < 1e-9",
    ),
    "duckdb": (
        "duckdb",
        "import duckdb\nc = duckdb.connect('d.duckdb'); c.execute('CREATE TABLE t AS SELECT range a FROM range(1000)'); assert c.execute('SELECT sum(a) FROM t').fetchone()[0] == 499500\nc.execute(\"COPY t TO 't.parquet'\"); assert c.execute(\"SELECT count(*) FROM 't.parquet'\").fetchone()[0] == 1000",
    ),
    "duckdb on a frame": (
        "duckdb",
        "import duckdb, pandas as pd\nframe = pd.DataFrame({'a': [1, 2, 3]}); assert duckdb.sql('SELECT sum(a) FROM frame').fetchall() == [(6,)]",
    ),
    "polars": (
        "polars",
        "import polars as pl\nd = pl.DataFrame({'k': ['a', 'a', 'b'], 'v': [1, 2, 3]}); assert d.group_by('k').agg(pl.col('v').sum()).sort('k')['v'].to_list() == [3, 3]\nd.write_parquet('p.parquet'); assert pl.scan_parquet('p.parquet').collect().height == 3",
    ),
    "pictures": (
        "PIL",
        "from PIL import Image, ImageDraw\ni = Image.new('RGB', (64, 64), 'white'); ImageDraw.Draw(i).text((5, 5), 'hi', fill='black'); i.save('i.png'); assert Image.open('i.png').size == (64, 64)",
    ),
    "tables": ("tabulate", "from tabulate import tabulate\nassert 'a |' in tabulate([[1]], ['a'], 'github')"),
    "ipython": (
        "IPython",
        "from IPython.core.interactiveshell import InteractiveShell\nassert InteractiveShell.instance().run_cell('1+1').result == 2",
    ),
}

PROGRAMS = [
    Benign(name=f"data: {name}", source=f"{source}\nprint('fine')", modules=(module,))
    for name, (module, source) in SOURCES.items()
]
