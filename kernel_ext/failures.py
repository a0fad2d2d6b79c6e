"""Details of a failure: its record, and buttons that show the record, skip it, and go to the function.

The drawer of the live picture uses these buttons directly. The markup below an error output is hidden until JupyterLab's side
panel extension, which handles the buttons, shows it. JupyterLab removes the attributes in an untrusted notebook, so there it
stays hidden.
"""

from __future__ import annotations

from collections.abc import Collection

from kstreams_repl.pictures.markup import Markup, clean_text, element, one_line
from kstreams_repl.repl.session import Application, Records
from kstreams_repl.repl.session.source.cell_history import CellLocation, history
from kstreams_repl.repl.session.views.picture.failed_record import with_record
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import RecordPosition

MESSAGE_CHARACTERS = 4000


def failure_of(app: Application, node: str, *, record: bool = False) -> Markup:
    """Return the error with which an application failed at this node, its record and the buttons; empty if it did not fail there.

    Args:
        record: whether to show the whole record too, which is read from the broker again.
    """
    error = app.error if app.status == "failed" else None
    if error is None or error.node != node:
        return Markup("")
    error = with_record(app._core.client, app.name, error, app.topology)
    place = error.record_position
    function = error.user_line
    cell = history.cell_of(function.file) if function is not None else None
    if cell is not None and function is not None:
        edit = [_cell_button("edit the function", cell.cell, function.line)]
    else:
        origin = app.topology.node(node).origin
        edit = [] if origin.cell is None else [_cell_button("edit the function", origin.cell, origin.line)]
        edit.append(element("code", f"%%topo_edit {app.name} {node}"))
    at_cell = None if cell is None or function is None else _cell_button(f"{cell}, line {function.line}", cell.cell, function.line)
    return element(
        "div",
        element("div", element("b", f"failed{'' if error.task is None else f' in task {one_line(error.task)}'} "), at_cell),
        element("pre", clean_text(str(error), limit=MESSAGE_CHARACTERS), class_="ks-error", role="alert"),
        element("div", *_record_buttons(place), *edit, class_="ks-ways"),
        _whole_record(app, place) if record and place is not None else None,
    )


def failure_buttons(error: BaseException, place: tuple[str, int, str] | None, applications: Collection[str]) -> Markup:
    """Return the buttons below an error that a cell raised; empty if there are none.

    Args:
        place: file, line and text of the user's code that the error refers to.
        applications: names of the applications that this kernel has attached.
    """
    name, record = (error.application, error.record_position) if isinstance(error, KStreamsError) else (None, None)
    cell: CellLocation | None = None if place is None else history.cell_of(place[0])
    elsewhere = cell is not None and cell.number != history.number  # the cell that raised is visible already
    known = name is not None and name in applications and record is not None
    link = [] if cell is None or place is None else [_cell_button(f"{cell}, line {place[1]}", cell.cell, place[1])]
    buttons = [*(link if elsewhere else []), *(_record_buttons(record) if known else [])]
    if known and cell is not None and place is not None:
        buttons.append(_cell_button("edit the function", cell.cell, place[1]))
    if not buttons:
        return Markup("")
    return element("div", *buttons, class_="ks-ways", hidden="", data_application=name if known else "")


def _record_buttons(place: RecordPosition | None) -> list[Markup]:
    if place is None:
        return []
    at = str(place)
    ask = f"Skip {at} and continue? No result will include it."
    return [
        element("button", "show this record", type="button", data_do="record", data_at=at),
        element("button", "skip it", type="button", data_do="skip", data_at=at, data_ask=ask),
    ]


def _cell_button(label: str, cell: str, line: int | None) -> Markup:
    return element("button", label, class_="ks-go", type="button", data_cell=cell, data_line=line)


def _whole_record(app: Application, place: RecordPosition) -> Markup:
    try:
        found = app.failed_record
    except KStreamsError as error:  # for example, the broker is unreachable
        return element("pre", error.message, role="status")
    if found is None:
        return element("div", f"{place}: the broker no longer has it")
    return element("div", element("div", element("b", f"record {place}")), Records([found]).table().html())
