"""The feeds in a Dagster that is not ours: merged with a team's definitions, as a component, and as a location of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import dagster as dg
import pytest
import yaml
from architecture.places import ROOT
from integration.desk import shell_environ
from on_dagster.desk import FEED, HEADER, MAPPING, Desk, line

from eventsync import FeedsComponent, FeedTranslator, feeds_definitions
from mappings.errors import ConfigError, MappingFileError
from mappings.spec.feed import FeedMapping
from pipelines.orchestration.component import FeedsScaffolder
from pipelines.run.context import open_context
from state.queries import LedgerQueries

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")
"""Dagster warns of its own components."""
OTHER = "library"
PAGE = (ROOT / "docs" / "into-your-dagster.md").read_text("utf-8")
SHOWN = {kind: re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for kind in ("python", "yaml")}
"""The blocks of the page; of those of YAML the first is a `defs.yaml`, the second a `workspace.yaml`."""
TEAM = """\
import dagster as dg


@dg.asset(required_resource_keys={"options"})
def warehouse(context):
    return context.resources.options


@dg.asset(deps=[["events", "town-hall", "published"], ["more", "library", "published"]])
def newsletter(): ...


both = dg.AssetSelection.assets(["events", "town-hall", "staged"], ["more", "library", "staged"])
team = dg.Definitions(
    assets=[warehouse, newsletter],
    jobs=[dg.define_asset_job("nightly", selection=both, config={"execution": {"config": {"max_concurrent": 1}}})],
    resources={"options": "the team's"},
    executor=dg.multiprocess_executor,
)
"""
MERGED = f"""\
from eventsync import feeds_definitions
{TEAM}
feeds = (feeds_definitions("feeds", key_prefix=["events"]), feeds_definitions("more", key_prefix=["more"]))
defs = dg.Definitions.merge(team, *feeds)
"""
COMPONENT = """\
import dagster as dg
from eventsync import FeedsComponent


class Partners(FeedsComponent):
    def get_asset_spec(self, feed, spec):
        return spec.replace_attributes(group_name="partners")


@dg.component_instance
def load(context: dg.ComponentLoadContext) -> Partners:
    return Partners("../../../../../more", ["more"])
"""
PROJECT = """\
[project]
name = "acme"
version = "1.0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "acme"
"""
DEFINITIONS = """\
from pathlib import Path
from types import ModuleType

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def team(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A team's working folder with two folders of feeds, whose sources have rows of their own."""
    more = desk.folder / "more"
    more.mkdir()
    (more / f"{OTHER}.yaml").write_text(MAPPING.format(feed=OTHER, source="more.csv"), "utf-8")
    (desk.folder / "more.csv").write_text("\n".join([HEADER, *(line(number) for number in range(50, 53))]), "utf-8")
    (desk.folder / "merged.py").write_text(MERGED, "utf-8")
    (desk.folder / "dagster").mkdir()
    for name, value in desk.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.folder)
    return desk


def project_of(folder: Path) -> Path:
    """A project as `create-dagster` makes it: the team's assets, a component in YAML, and one of a class of the team's."""
    defs = folder / "project" / "src" / "acme" / "defs"
    defs.mkdir(parents=True)
    (folder / "project" / "pyproject.toml").write_text(PROJECT, "utf-8")
    (defs.parent / "__init__.py").touch()
    (defs.parent / "definitions.py").write_text(DEFINITIONS, "utf-8")
    (defs / "team.py").write_text(TEAM, "utf-8")
    for name in ("events", "more"):
        (defs / name).mkdir()
    (defs / "events" / "defs.yaml").write_text(SHOWN["yaml"][0].replace("folder: feeds", "folder: ../../../../../feeds"), "utf-8")
    (defs / "more" / "component.py").write_text(COMPONENT, "utf-8")
    return folder / "project"


def definitions_of(text: str) -> dg.Definitions:
    space: dict[str, dg.Definitions] = {}
    exec(compile(text, "definitions.py", "exec"), space)
    return space["defs"]


def merged_in(_team: Desk) -> dg.Definitions:
    return definitions_of(MERGED)


def component_in(team: Desk) -> dg.Definitions:
    path = project_of(team.folder) / "src"
    sys.path.insert(0, str(path))
    try:
        return dg.load_from_defs_folder(path_within_project=path / "acme")
    finally:
        sys.path.remove(str(path))
        for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
            del sys.modules[name]


@pytest.mark.parametrize("made", [merged_in, component_in])
def test_two_folders_run_among_a_teams_definitions_and_leave_them_as_they_are(
    team: Desk, made: Callable[[Desk], dg.Definitions]
) -> None:
    definitions = made(team)
    dg.Definitions.validate_loadable(definitions)
    jobs = {job.name: job for job in definitions.get_repository_def().get_all_jobs()}
    assert {"nightly", "events_sync", "more_sync"} <= jobs.keys()
    assert jobs["nightly"].executor_def.name == "multiprocess"
    assert [name for name in jobs["nightly"].resource_defs if name == "options"] == ["options"]
    for name in ("events_sync", "more_sync"):
        assert definitions.resolve_job_def(name).execute_in_process(instance=team.instance).success
    assert len(team.titles()) == 13
    whole = definitions.resolve_implicit_global_asset_job_def()
    result = whole.execute_in_process(
        instance=team.instance, asset_selection=[dg.AssetKey("warehouse"), dg.AssetKey("newsletter")]
    )
    assert result.output_for_node("warehouse") == "the team's"
    if made is component_in:
        groups = {spec.key.to_user_string(): spec.group_name for spec in definitions.resolve_all_asset_specs()}
        assert (groups["events/town-hall/published"], groups["more/library/published"]) == ("town_hall", "partners")
    deps = definitions.get_repository_def().asset_graph.get(dg.AssetKey("newsletter")).parent_keys
    assert {tuple(key.path) for key in deps} == {("events", FEED, "published"), ("more", OTHER, "published")}


def test_a_broken_file_in_each_of_two_folders_is_shown_and_fails_where_definitions_are_validated(
    team: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("feeds", "more"):
        (team.folder / folder / "same.yaml").write_text("feed: [", "utf-8")
    definitions = merged_in(team)
    dg.Definitions.validate_loadable(definitions)
    keys = {tuple(key.path) for key in definitions.resolve_all_asset_keys()}
    assert {("events", "broken_feeds", "same_yaml"), ("more", "broken_feeds", "same_yaml")} <= keys
    monkeypatch.setenv("DAGSTER_IS_DEFS_VALIDATION_CLI", "1")
    with pytest.raises(MappingFileError, match=r"same\.yaml"):
        merged_in(team)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no folder of feeds at .*nowhere"):
        feeds_definitions(tmp_path / "nowhere")


@pytest.mark.slow(about_s=8)
def test_the_module_that_the_page_shows_runs_by_dagsters_command_without_a_home_and_logs_no_line_for_each_row(team: Desk) -> None:
    acme = team.folder / "acme"
    acme.mkdir()
    (acme / "__init__.py").touch()
    (acme / "assets.py").write_text("import dagster as dg\n\nteam_defs = dg.Definitions()\n", "utf-8")
    (acme / "definitions.py").write_text(SHOWN["python"][0], "utf-8")
    said = command(team, "dagster", "job", "execute", "-m", "acme.definitions", "-j", "events_sync", DAGSTER_HOME="")
    assert (len(team.titles()), "row is sent" in said) == (10, False)


def test_the_translator_that_the_page_shows_is_asked(team: Desk) -> None:
    translated = definitions_of(SHOWN["python"][1])
    assert {(spec.group_name, spec.tags["partner"]) for spec in translated.resolve_all_asset_specs()} == {("partners", FEED)}
    assert translated.resolve_job_def("sync").execute_in_process(instance=team.instance).success


class Renaming(FeedTranslator):
    def get_asset_spec(self, feed: FeedMapping, spec: dg.AssetSpec) -> dg.AssetSpec:
        is_last = spec.key.path == [feed.feed, "published"]
        return spec.replace_attributes(key=spec.key.with_prefix("acme")) if is_last else spec


def test_an_asset_may_have_another_key(team: Desk) -> None:
    definitions = feeds_definitions("feeds", translator=Renaming())
    keys = {tuple(key.path) for key in definitions.resolve_all_asset_keys()}
    assert keys == {*((FEED, kind) for kind in ("source", "staged", "backfilled")), ("acme", FEED, "published")}
    assert definitions.resolve_job_def("sync").execute_in_process(instance=team.instance).success
    assert len(team.titles()) == 10


def test_what_the_component_scaffolds_can_be_loaded(team: Desk) -> None:
    place = project_of(team.folder) / "src" / "acme" / "defs" / "scaffolded"
    place.mkdir()
    request = dg.ScaffoldRequest("eventsync.FeedsComponent", place, "yaml", team.folder, None)
    FeedsScaffolder().scaffold(request)
    document = yaml.safe_load((place / "defs.yaml").read_text("utf-8"))
    assert document == {"type": "eventsync.FeedsComponent", "attributes": {"folder": "feeds", "key_prefix": []}}
    assert FeedsComponent(**document["attributes"]).folder == "feeds"
    made = feeds_definitions(place / "feeds")
    assert made.resolve_job_def("sync").execute_in_process(instance=team.instance).success
    assert team.titles()[-1] == "Opening night"


def command(team: Desk, *words: str | Path, cwd: Path | None = None, **environ: str) -> str:
    """Run a program of the environment, which must end well; return all that it printed."""
    program = Path(sys.executable).with_name(str(words[0])) if isinstance(words[0], str) else words[0]
    env = shell_environ({"DAGSTER_DISABLE_TELEMETRY": "yes", **team.environ, **environ})
    env = {name: value for name, value in env.items() if value}
    ended = subprocess.run([program, *words[1:]], cwd=cwd or team.folder, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.slow(about_s=15)
def test_a_job_of_the_team_makes_assets_of_two_feeds_in_processes_of_its_own(team: Desk) -> None:
    command(team, "dagster", "job", "execute", "-f", "merged.py", "-a", "defs", "-j", "nightly")
    settings = team.settings
    with open_context(settings) as context:
        runs = [
            run
            for feed in (FEED, OTHER)
            for run in LedgerQueries(context.engine).runs(destination=settings.destination, feed=feed)
        ]
    assert [(run.book.feed, run.read is not None) for run in runs] == [(FEED, True), (OTHER, True)]
    with dg.DagsterInstance.from_config(str(team.folder / "dagster")) as instance:
        (ours,) = instance.get_runs()
    assert ours.remote_job_origin is None, "a run of the team's location is not said to be of ours"


@pytest.mark.slow(about_s=30)
def test_dagsters_own_commands_work_on_our_location(team: Desk) -> None:
    at = ("-m", "pipelines.definitions", "-d", str(ROOT))
    listed = command(team, "dagster", "asset", "list", *at).split()
    assert [f"{FEED}/{name}" for name in ("published", "staged") if f"{FEED}/{name}" not in listed] == []
    command(team, "dagster", "asset", "materialize", "--select", f"{FEED}/staged", *at)
    assert team.posts() == 0
    command(team, "dagster", "job", "launch", "-j", "sync", *at)
    with dg.DagsterInstance.from_config(str(team.folder / "dagster")) as instance:
        (launched,) = instance.get_runs(limit=1)
    assert (launched.job_name, launched.status) == ("sync", dg.DagsterRunStatus.QUEUED)


@pytest.mark.slow(about_s=15)
@pytest.mark.skipif(not Path(sys.executable).with_name("dg").exists(), reason="dagster-dg-cli is not here")
def test_dg_checks_and_lists_a_project_with_feeds(team: Desk) -> None:
    project = project_of(team.folder)
    installed = {"PYTHONPATH": str(project / "src")}
    assert "loaded successfully" in command(team, "dg", "check", "defs", cwd=project, **installed)
    listed = command(team, "dg", "list", "defs", "--json", cwd=project, **installed)
    assert [key for key in ("warehouse", f"events/{FEED}/published", f"more/{OTHER}/published") if f'"{key}"' not in listed] == []


@pytest.mark.slow(about_s=15)
def test_our_interpreter_serves_a_location_beside_a_team_with_packages_of_the_same_names(team: Desk, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "pipelines").mkdir(parents=True)
    (theirs / "pipelines" / "__init__.py").touch()
    (theirs / "pipelines" / "definitions.py").write_text("import dagster as dg\n\n\n@dg.asset\ndef warehouse(): ...\n", "utf-8")
    interpreter = interpreter_with(
        tmp_path / "environment", [theirs, *(Path(path) for path in sys.path if path.endswith("site-packages"))]
    )
    shown = SHOWN["yaml"][1].replace("/srv/events", str(team.folder)).replace("/opt/eventsync/bin/python", sys.executable)
    workspace = yaml.safe_load(shown)
    acme = {"module_name": "pipelines.definitions", "working_directory": str(theirs), "location_name": "acme"}
    workspace["load_from"].append({"python_module": acme})
    (team.folder / "workspace.yaml").write_text(yaml.safe_dump(workspace), "utf-8")
    said = command(team, interpreter, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml")
    assert [name for name in ("acme", "eventsync") if f"Validation successful for code location {name}" not in said] == [], said


def interpreter_with(folder: Path, packages: Sequence[Path]) -> Path:
    """An environment of its own, in which the packages of these folders are found."""
    venv.create(folder, symlinks=True)
    (place,) = folder.glob("lib/*/site-packages")
    (place / "some.pth").write_text("\n".join(map(str, packages)), "utf-8")
    return folder / "bin" / "python"
