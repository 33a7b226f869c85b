"""What `inspect` prints: one reading of the cluster in the form that the user chose.

Belongs here: which form, what it is made from, and notes beside it. Never: the forms themselves (report/), arguments.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from accelshare.terminal import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from accelshare.inspect_cli.cluster_reader import ClusterSnapshot
    from accelshare.inspect_cli.usage_reader import ClusterUse, UsageReader
    from accelshare.report.bars import Sections
    from accelshare.report.view import NodeRow
    from accelshare.vendors.profile import Profile
    from accelshare.wire.usage import NodeUse


class Form(NamedTuple):
    """What the user wants to see."""

    node: str | None = None
    namespace: str | None = None
    details: bool = False
    output: str = "table"  # bars, table, wide, json or yaml
    idle_s: float | None = None  # only pods that have been idle for so long
    bars_if_narrow: bool = False  # on a screen that is too narrow for the table
    colours: bool = False
    encoding: str | None = None  # of the screen: bars are drawn with characters that it has


class InspectPage:
    """What is printed, once or repeatedly."""

    def __init__(
        self,
        reader: Any,
        client: Any,
        chosen: "list[Profile]",
        form: Form,
        usage_reader: "UsageReader | None",
    ) -> None:
        """`usage_reader`: from where to learn who uses the cards; None: it is not shown."""
        self._reader = reader
        self._client = client
        self._chosen = chosen
        self._form = form
        self._usage_reader = usage_reader

    def read(self) -> "ClusterSnapshot":
        from accelshare.kube.errors import NotFound

        try:
            snapshot: ClusterSnapshot = self._reader.read()
        except NotFound:
            if self._form.node is None:
                raise
            from accelshare.inspect_cli.cluster_reader import names
            from accelshare.inspect_cli.error_messages import unknown

            unknown("node", self._form.node, names(self._client, "/api/v1/nodes"))
        if self._form.namespace and not any(snapshot.ledger.pods()):
            from accelshare.inspect_cli.cluster_reader import require_namespace

            require_namespace(self._client, self._form.namespace)
        return snapshot

    def text(self, snapshot: "ClusterSnapshot", columns: int) -> str:
        """The whole page; bars are as wide as this many columns."""
        if self._form.output == "bars" and self._form.idle_s is None:
            return self._bars(snapshot, columns).text()
        return self._text(snapshot)

    def screen(self, snapshot: "ClusterSnapshot", columns: int, lines: int) -> str:
        """As much of the page as a screen shows: always with the totals, and what is left out is said."""
        from accelshare.inspect_cli.screen import fitted, widest

        if self._form.output == "bars" and self._form.idle_s is None:
            return self._with_notes(snapshot, columns, lines, lambda left: self._bars(snapshot, columns).cut(left))
        text = self._text(snapshot)
        if self._form.bars_if_narrow and self._form.idle_s is None and widest(text) > columns:
            return self._with_notes(snapshot, columns, lines, lambda left: self._bars(snapshot, columns).cut(left))
        return fitted(text, columns, lines, self._totals(snapshot))

    def _with_notes(self, snapshot: "ClusterSnapshot", columns: int, lines: int, cut: Callable[[int], str]) -> str:
        """The page, and below it one line about the first note: it would be on standard error."""
        notes = self.notes(snapshot)
        if not notes or lines < 8:
            return cut(lines)
        from accelshare.terminal import shortened

        more = f" (and {len(notes) - 1} more notes: inspect without --watch)" if len(notes) > 1 else ""
        first = shortened(visible(notes[0]), max(20, columns - len(more)))
        return f"{cut(lines - 2)}\n{shortened(f'{first}{more}', columns)}\n"

    def _shown(self, snapshot: "ClusterSnapshot") -> "tuple[list[NodeRow], list[Profile]]":
        from accelshare.report.view import rows

        shown = rows(snapshot.ledger, [self._form.node] if self._form.node is not None else None)
        profiles = self._chosen or [profile for profile in snapshot.catalog if any(row.has(profile.name) for row in shown)]
        return shown, profiles

    def _bars(self, snapshot: "ClusterSnapshot", columns: int) -> "Sections":
        from accelshare.inspect_cli.colours import paint
        from accelshare.report.bars import ASCII, BLOCKS, Overview, sections
        from accelshare.report.lines import plain
        from accelshare.terminal import encodable

        shown, profiles = self._shown(snapshot)
        wanted = {profile.name for profile in self._chosen}
        waiting = [pod for pod in snapshot.waiting_pods() if not wanted or wanted & set(pod.kinds)]
        uses = self._use(shown).nodes if self._usage_reader is not None else {}
        signs = "".join((*BLOCKS.pods, BLOCKS.free, BLOCKS.out))
        return sections(
            Overview(shown, profiles, snapshot.inventories, uses, waiting),
            columns,
            glyphs=BLOCKS if encodable(signs, self._form.encoding) == signs else ASCII,
            paint=paint if self._form.colours else plain,
        )

    def _text(self, snapshot: "ClusterSnapshot") -> str:
        shown, profiles = self._shown(snapshot)
        uses = self._use(shown).nodes if self._usage_reader is not None else {}
        output = self._form.output
        if self._form.idle_s is not None:
            return self._idle(shown, profiles, uses)
        if output == "wide":
            from accelshare.report.tables import wide

            return wide(shown, profiles, snapshot.inventories, uses)
        if output in ("json", "yaml"):
            from accelshare.report.inspect_json import document

            with_any = [row for row in shown if any(row.has(profile.name) for profile in profiles)]
            return written(document(with_any, profiles, snapshot.inventories, uses), output)
        from accelshare.report import tables

        table = tables.details if self._form.details else tables.summary
        # A single table is exactly the original's; several have titles.
        titled = len(profiles) > 1
        originals = "\n".join(
            (f"{profile.title}\n" if titled else "") + table(shown, profile, snapshot.inventories) for profile in profiles
        )
        if not uses:
            return originals
        from accelshare.report.usage import pod_lines

        return f"{originals}\n{tables.tabbed(pod_lines(shown, profiles, uses))}"

    def _totals(self, snapshot: "ClusterSnapshot") -> list[str]:
        """What stays on a screen that is too small for the rest."""
        if self._form.idle_s is not None or self._form.output in ("json", "yaml"):
            return []
        from accelshare.report.tables import totals

        shown, profiles = self._shown(snapshot)
        return [line for profile in profiles for line in totals(shown, profile, snapshot.inventories)]

    def _use(self, shown: "list[NodeRow]") -> "ClusterUse":
        assert self._usage_reader is not None
        return self._usage_reader.read([row.name for row in shown if any(card.present for card in row.cards)])

    def _idle(self, shown: "list[NodeRow]", profiles: "list[Profile]", uses: "Mapping[str, NodeUse]") -> str:
        from accelshare.report import usage
        from accelshare.report.tables import tabbed

        assert self._form.idle_s is not None
        pods = usage.idle_pods(shown, profiles, uses, least_s=self._form.idle_s)
        if self._form.output in ("json", "yaml"):
            return written(usage.idle_document(pods), self._form.output)
        return tabbed(usage.idle_lines(pods))

    def notes(self, snapshot: "ClusterSnapshot") -> list[str]:
        """Notes for the reader of the page, for standard error."""
        from accelshare.report.tables import has_anything

        shown, _ = self._shown(snapshot)
        notes = list(snapshot.problems)
        if self._usage_reader is not None:
            notes += self._use(shown).notes
            if self._form.idle_s is not None:
                notes += self._unknown_use(shown)
        where = f"node {self._form.node}" if self._form.node is not None else "this cluster"
        for profile in self._chosen:
            if self._form.output == "table" and not any(has_anything(row, profile) for row in shown):
                whole = [row.name for row in shown if row.of(profile.name)]
                more = f"; whole cards only: {', '.join(whole[:5])} (see -o wide)" if whole else ""
                notes.append(f"{where} shows no {profile.resources.memory or profile.resources.whole}{more}")
        if not self._chosen and not any(row.cards or row.unplaced for row in shown):
            notes.append(f"{where} has no cards of any vendor: {', '.join(profile.title for profile in snapshot.catalog)}")
        if self._form.namespace is not None:
            what = f"only pods of namespace {self._form.namespace} are counted"
            notes.append(what if any(snapshot.ledger.pods()) else f"{what}, and none of them requests cards")
        for row in shown:
            if not self._chosen or any(row.has(profile.name) for profile in self._chosen):
                notes += [f"{row.name}: {problem}" for problem in row.problems]
        return notes

    def _unknown_use(self, shown: "list[NodeRow]") -> list[str]:
        """A list of idle pods is not complete without these."""
        known = self._use(shown).nodes
        without = [row.name for row in shown if any(card.pods for card in row.cards) and row.name not in known]
        more = f" and {len(without) - 5} more" if len(without) > 5 else ""
        if not without:
            return []
        return [f"nothing is known about the use of {', '.join(without[:5])}{more}: does the agent run with --usage?"]


def written(value: object, form: str) -> str:
    """JSON or YAML in which every character is shown."""
    import json

    if form == "json":
        return visible_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"
    import yaml

    text: str = yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=True)
    # YAML escapes only some control characters; the ASCII form of the same data escapes all.
    return text if visible_lines(text) == text else yaml.safe_dump(value, sort_keys=False)
