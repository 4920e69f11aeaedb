"""A cell that lacks a package: it is installed if policy lets it, and the cell runs once more from its start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from pinfold.engine.core import Core
from pinfold.engine.ports import Given, OnCall, Performed
from pinfold.events import ActionId, ActionStarted, Ask, Call, Deny

INSTALL = "install"
NOT_ASKED = "the package {0} is missing; with `--mode full` it is installed and the cell runs again"


async def run_with_package(
    core: Core,
    id_: ActionId,
    first: Performed,
    *,
    given: Given,
    on_call: OnCall,
    begin: Callable[[], Awaitable[None]],
    run: Callable[[int], Awaitable[Performed]],
) -> Performed:
    """Install what `first` lacks, take that attempt back, and run again. `begin` puts the start of the first on record.

    What an undo does not take back would happen twice: then the package is installed, and nothing is run again.
    """
    action = core.hands.action(Call(id=id_, tool=INSTALL, args={"package": first.missing}))
    match core.hands.judge(action, given):
        case Deny():
            return first
        case Ask() if core.unattended:
            return replace(first, notices=(*first.notices, NOT_ASKED.format(first.missing)))
        case _:
            await begin()
    item = core.state.open[id_]
    cell = item.cell or 0
    is_final = bool(first.sent or core.state.effects_of((cell,)))
    done = await on_call(INSTALL, {"package": first.missing})
    if done.outcome != "ok":
        return _adding(first, done.observation)
    taken_back = None if is_final else await core.hands.undo_cell(cell)
    if taken_back is None:
        return _adding(first, f"{done.observation}; run again what did not run")
    again = core.state.cells + 1
    await core.record(ActionStarted(id=id_, effect=item.effect, cell=again, instead_of=cell))
    second = _adding(await run(again), f"{done.observation}, and ran the cell again from its start")
    return replace(second, notices=(*taken_back, *second.notices)).after(first)


def _adding(performed: Performed, words: str) -> Performed:
    observation = f"{performed.observation.rstrip()}\n[{words}]\n".lstrip()
    return replace(performed, observation=observation, notices=(*performed.notices, words))
