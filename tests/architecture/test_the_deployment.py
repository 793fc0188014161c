"""The files of deploy/ agree with the code and with each other, and keep secrets and rights where they are needed."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from architecture.places import ROOT
from commands import every_command

from pipelines.before_serving import DAGSTER_YAML

DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "Containerfile"
UNITS = sorted((DEPLOY / "systemd").glob("eventsync*.*"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: one for name, one in SERVICES.items() if "build" in one}
"""Those that run our image."""
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "values.yaml").read_text("utf-8"))
HERE: dict[str, Any] = yaml.safe_load(DAGSTER_YAML)
A_SECRET = re.compile("KEY|PASSWORD|TOKEN|SECRET")


def _secrets(names: Iterable[str]) -> list[str]:
    """Names of variables that would hold a secret, and not the place of a file with one."""
    return [name for name in names if A_SECRET.search(name) and not name.endswith("_FILE")]


def _after(option: str, command: list[str]) -> str:
    return command[command.index(option) + 1]


def test_the_settings_of_dagster_are_the_command_lines_but_for_where_its_history_is() -> None:
    settings = yaml.safe_load((DEPLOY / "dagster.yaml").read_text("utf-8"))
    assert settings.pop("storage") == {"postgres": {"postgres_url": {"env": "DAGSTER_POSTGRES_URL"}}}
    assert settings == HERE


def test_celery_changes_who_launches_runs_and_its_workers_know_what_the_code_server_knows() -> None:
    plain, celery = (yaml.safe_load((DEPLOY / name / "dagster.yaml").read_text("utf-8")) for name in (".", "celery"))
    assert {name for name in plain if plain[name] != celery[name]} == {"run_launcher"}
    services = yaml.safe_load((DEPLOY / "celery" / "compose.yaml").read_text("utf-8"))["services"]
    code, worker = SERVICES["code"], services["worker"]
    of_the_server = {"DAGSTER_CODE_HOST", "DAGSTER_CODE_SERVER_SOCKET"}
    assert {name for name, _ in code["environment"].items() - worker["environment"].items()} == of_the_server
    assert {one for one in code["volumes"] if not one.startswith("code-socket:")} <= set(worker["volumes"])
    assert [*code["secrets"], "redis_password"] == worker["secrets"]
    same = ("networks", "init", "stop_grace_period", "read_only", "tmpfs", "cap_drop", "security_opt", "env_file")
    assert [name for name in same if code[name] != worker[name]] == []
    assert all(services[name] == services["code"] for name in ("webserver", "daemon"))
    assert f" {worker['command'][0]} |" in (DEPLOY / "entrypoint.sh").read_text("utf-8")


def test_every_file_that_the_composition_mounts_is_there_or_said_how_to_make() -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    beginning, services = text.partition("\nname:")[0], SERVICES.values()
    mounted = {volume.split(":")[0] for one in services for volume in one.get("volumes", []) if volume.startswith("./")}
    assert [path for path in mounted if not (DEPLOY / path).is_file()] == []
    secrets = {Path(one["file"]).name for one in COMPOSE["secrets"].values()}
    assert {name for name in secrets if name in beginning} == secrets
    assert all(os.access(DEPLOY / path, os.X_OK) for path in mounted if path.endswith(".sh"))


def test_every_volume_network_and_secret_of_the_composition_is_declared_and_used() -> None:
    for kind in ("networks", "secrets"):
        assert {name for one in SERVICES.values() for name in one.get(kind, [])} == set(COMPOSE[kind])
    sources = {volume.split(":")[0] for one in SERVICES.values() for volume in one.get("volumes", [])}
    assert {source for source in sources if re.fullmatch(r"[a-z-]+", source)} == set(COMPOSE["volumes"])


def test_only_what_works_on_feeds_knows_the_key_and_the_service() -> None:
    knowing = {name for name, one in OURS.items() if "event_api_key" in one["secrets"]}
    assert knowing == {"code", "cli"}
    assert knowing == {name for name, one in OURS.items() if "EVENT_API_KEY_FILE" in one["environment"]}
    assert all("env_file" not in one for name, one in OURS.items() if name not in knowing)


def test_each_part_has_the_password_of_its_own_role_and_a_role_that_the_databases_have() -> None:
    roles = re.findall(r"CREATE ROLE (\w+) LOGIN PASSWORD :'(\w+)'", (DEPLOY / "roles.sql").read_text("utf-8"))
    assert roles == [(f"eventsync_{name}", f"{name}_password") for name in ("migration", "worker", "webserver")]
    for name, one in SERVICES.items():
        addresses = [value for variable, value in one.get("environment", {}).items() if variable.endswith("_URL")]
        found = {role for value in addresses for role in re.findall(r"//(\w+)@postgres/", str(value))}
        held = {secret for secret in one.get("secrets", []) if secret.endswith("_password")}
        if name == "postgres":
            assert held == {password for _, password in roles}
        else:
            assert {role.replace("eventsync_", "") + "_password" for role in found} == held, name
            assert len(held) == (name != "watch"), name


def test_every_image_is_named_by_its_digest_which_an_operator_looks_up() -> None:
    celery = yaml.safe_load((DEPLOY / "celery" / "compose.yaml").read_text("utf-8"))["services"]
    others = {one["image"].partition(":?")[0] for one in (*SERVICES.values(), celery["redis"]) if "build" not in one}
    assert others == {"${POSTGRES_IMAGE", "${REDIS_IMAGE"}, "without a default: a tag alone is another image tomorrow"
    assert {one["build"]["args"]["PYTHON_IMAGE"] for one in OURS.values()} == {"${PYTHON_IMAGE:-}"}
    froms = [name.partition(" AS ")[0] for name in _instructions("FROM")]
    assert (set(froms), _instructions("ARG")[0]) == ({"${PYTHON_IMAGE}"}, "PYTHON_IMAGE")
    example = (DEPLOY / ".env.example").read_text("utf-8")
    assert set(re.findall(r"#(\w+_IMAGE)=\S+@sha256:", example)) == {"PYTHON_IMAGE", "POSTGRES_IMAGE", "REDIS_IMAGE"}


def test_redis_asks_for_a_password_which_no_list_of_processes_shows_and_clients_have_it(tmp_path: Path) -> None:
    redis = yaml.safe_load((DEPLOY / "celery" / "compose.yaml").read_text("utf-8"))["services"]["redis"]
    assert (redis["secrets"], redis["networks"]) == (["redis_password"], ["inside"])
    shell, option, script = redis["command"]
    (tmp_path / "docker-entrypoint.sh").write_text('#!/bin/sh\necho "$@"\ncat\n', "utf-8")
    (tmp_path / "docker-entrypoint.sh").chmod(0o755)
    (tmp_path / "password").write_text("s3cret\n", "utf-8")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD_FILE": str(tmp_path / "password")}
    script = script.replace("$$", "$").replace("/run/secrets/redis_password", env["REDIS_PASSWORD_FILE"])
    said = subprocess.run([shell, option, script], env=env, capture_output=True, text=True, check=True).stdout
    assert said == "redis-server -\nappendonly yes\nrequirepass s3cret\n"
    words = [DEPLOY / "entrypoint.sh", "sh", "-c", "echo $CELERY_BROKER_URL $CELERY_RESULT_BACKEND"]
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    assert said == "redis://:s3cret@redis/0 redis://:s3cret@redis/1\n"


def test_celerys_packages_are_installed_by_their_hashes() -> None:
    text = (DEPLOY / "celery" / "Containerfile").read_text("utf-8")
    assert "pip install --quiet --no-compile --no-cache-dir --require-hashes --requirement /opt/eventsync/celery.lock" in text
    assert "COPY requirements.lock /opt/eventsync/celery.lock" in text


def test_the_notice_names_every_package_with_its_licence_and_their_texts() -> None:
    said = subprocess.run([sys.executable, DEPLOY / "notice.py"], capture_output=True, text=True, check=True).stdout
    listed = dict(re.findall(r"(?m)^(\S+) \S+: (?!\S+\.dist-info)(.+)$", said.partition("=" * 100)[0]))
    assert {one.metadata["Name"] for one in distributions()} <= listed.keys()
    assert "Apache" in listed["dagster"]
    assert "Apache License" in said.partition("dagster_webserver-")[2]
    building = [run for run in _instructions("RUN") if "notice.py" in run]
    assert building == ["python /opt/eventsync/notice.py >/opt/eventsync/NOTICE"]


def test_no_secret_stands_in_the_environment_of_the_composition_or_in_the_example() -> None:
    said = {name: str(value) for one in SERVICES.values() for name, value in one.get("environment", {}).items()}
    assert _secrets(said) == []
    assert not [value for value in said.values() if re.search(r"://[^/@]*:[^/@]*@", value)]
    for path in (DEPLOY / ".env.example", DEPLOY / "systemd" / "environment.example"):
        lines = path.read_text("utf-8").splitlines()
        assert not [line for line in lines if re.match(r"#?\w*(KEY|PASSWORD|TOKEN|SECRET)=.", line)]


def test_our_containers_may_do_nothing_that_they_need_not() -> None:
    for one in OURS.values():
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in one["security_opt"]
        assert one["init"] is True
    ports = [port for one in SERVICES.values() for port in one.get("ports", [])]
    assert [port for port in ports if "127.0.0.1:" not in port] == []
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert SERVICES["postgres"]["networks"] == ["inside"]


def test_every_part_that_is_a_verb_of_ours_is_one_with_its_options_and_has_the_time_to_stop() -> None:
    verbs = dict(every_command())
    programs = {"dagster", "dagster-daemon", "python", "sh"}
    commands = [one["command"] for one in OURS.values() if one["command"][0] not in {*programs, "--help"}]
    assert len(commands) > 1
    for verb, *words in commands:
        options = {option for one in verbs[verb].params for option in one.opts}
        assert {word for word in words if word.startswith("--")} <= options
    grace = int(SERVICES["code"]["stop_grace_period"].rstrip("s"))
    assert grace > HERE["run_monitoring"]["cancel_timeout_seconds"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_takes_every_unit_without_a_word_and_every_service_is_confined(tmp_path: Path) -> None:
    units = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, units, strict=True):  # as they are, but for programs that are not on this machine
        copy.write_text(re.sub(r"(?m)^(Exec\w+=)/(opt|usr/local)/\S+", r"\1/bin/true", unit.read_text("utf-8")), "utf-8")
    words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    services = [path for path in units if path.suffix == ".service"]
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=16", "--no-pager", *services]
    assert subprocess.run(words, capture_output=True, text=True, check=False).returncode == 0


def _service_section(unit: Path) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False, comment_prefixes=("#",), delimiters=("=",), interpolation=None)
    parser.read(unit, "utf-8")
    return parser["Service"]


def test_the_units_of_one_machine_do_what_the_composition_does_and_only_those_that_need_the_key_load_it() -> None:
    units = {path.stem: _service_section(path) for path in UNITS if path.suffix == ".service"}
    for part, unit in (("code", units["eventsync-code"]), ("webserver", units["eventsync-webserver"])):
        command = (
            " ".join(SERVICES[part]["command"])
            .replace("0.0.0.0", "127.0.0.1")
            .replace("/srv/eventsync/dagster", "/etc/eventsync")
        )
        assert unit["ExecStart"] == f"/opt/eventsync/bin/{command}"
    assert {path.stem for path in UNITS if path.suffix == ".timer"} <= units.keys()
    assert {one["User"] for one in units.values()} == {"eventsync"}
    assert {name for name, one in units.items() if "LoadCredential" in one} == {"eventsync-code", "eventsync-run"}


def test_the_code_server_listens_on_a_socket_in_a_folder_of_its_user_and_on_no_port() -> None:
    (server,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text("utf-8"))["load_from"]
    variable = "DAGSTER_CODE_SERVER_SOCKET"
    assert (server["grpc_server"]["socket"], "port" in server["grpc_server"]) == ({"env": variable}, False)
    assert not {"--port", "--host"} & set(SERVICES["code"]["command"])
    for name in ("code", "webserver", "daemon"):
        place = Path(SERVICES[name]["environment"][variable]).parent
        assert f"code-socket:{place}" in SERVICES[name]["volumes"]
        assert f"--mode=700 {place}" in CONTAINERFILE.read_text("utf-8")
        unit = DEPLOY / "systemd" / f"eventsync-{name}.service"
        assert f"{variable}=/run/eventsync/code " in unit.read_text("utf-8")
    code = _service_section(DEPLOY / "systemd" / "eventsync-code.service")
    assert (code["RuntimeDirectory"], code["RuntimeDirectoryMode"]) == ("eventsync", "0700")


def test_in_a_cluster_only_webserver_and_daemon_reach_the_code_server() -> None:
    policy = yaml.safe_load((DEPLOY / "network-policy.yaml").read_text("utf-8"))["spec"]
    (code,) = VALUES["dagster-user-deployments"]["deployments"]
    assert policy["podSelector"] == {"matchLabels": {"component": "user-deployments", "deployment": code["name"]}}
    ((rule,), types) = (policy["ingress"], policy["policyTypes"])
    assert (rule["ports"], types) == ([{"protocol": "TCP", "port": code["port"]}], ["Ingress"])
    ((peer,),) = (one["podSelector"]["matchExpressions"] for one in rule["from"])
    assert (peer["key"], set(peer["values"])) == (
        "component",
        {"dagster-webserver", "dagster-webserver-read-only", "dagster-daemon"},
    )
    assert "network-policy.yaml" in (DEPLOY / "values.yaml").read_text("utf-8")


def test_the_image_has_no_webserver_without_a_guard() -> None:
    (shim,) = [copy for copy in _instructions("COPY") if "deploy/dagster-webserver" in copy]
    assert shim.split()[-1] == "/opt/eventsync/bin/", "in the place of Dagster's own, which Dagster's chart calls"
    assert "-m pipelines.dagster_ui" in (DEPLOY / "dagster-webserver").read_text("utf-8")
    assert SERVICES["webserver"]["command"][:3] == ["python", "-m", "pipelines.dagster_ui"]
    hosts = SERVICES["webserver"]["environment"]["EVENTSYNC_UI_HOSTS"].split()
    assert hosts[0] == SERVICES["cli"]["environment"]["EVENTSYNC_DAGSTER_URL"].removeprefix("http://")


def test_a_cluster_runs_our_image_without_rights_and_as_one_machine_runs_it() -> None:
    (code,) = VALUES["dagster-user-deployments"]["deployments"]
    daemon, beside, purge = VALUES["dagsterDaemon"], VALUES["additionalInstanceConfig"], VALUES["retention"]
    assert _after("--location-name", code["codeServerArgs"]) == _after("--location-name", SERVICES["code"]["command"])
    for part in (code, VALUES["dagsterWebserver"], daemon):
        assert part["image"]["repository"] == "eventsync"
        assert part["podSecurityContext"]["runAsNonRoot"] is True
        assert part["securityContext"]["allowPrivilegeEscalation"] is False
    assert {volume["name"] for volume in code["volumes"]} == {mount["name"] for mount in code["volumeMounts"]}
    assert [name for name in code["env"] if name.endswith("STATE_URL")] == _secrets(code["env"]) == []
    assert beside == {name: HERE[name] for name in beside}
    assert {"concurrency", "run_queue"} <= beside.keys()
    assert daemon["runCoordinator"] == {"enabled": False}, "its limits and `concurrency` exclude one another"
    monitoring = daemon["runMonitoring"]
    assert monitoring["cancelTimeoutSeconds"] == HERE["run_monitoring"]["cancel_timeout_seconds"]
    assert monitoring["freeSlotsAfterRunEndSeconds"] == HERE["run_monitoring"]["free_slots_after_run_end_seconds"]
    assert purge["schedule"]["purgeAfterDays"] == HERE["retention"]["schedule"]["purge_after_days"]
    assert HERE["retention"]["sensor"]["purge_after_days"].items() <= purge["sensor"]["purgeAfterDays"].items()


def _instructions(word: str) -> list[str]:
    text = CONTAINERFILE.read_text("utf-8").replace("\\\n", " ")
    return [line.removeprefix(word).strip() for line in text.splitlines() if line.startswith(f"{word} ")]


def test_what_the_image_is_built_from_is_there_and_let_in() -> None:
    copied = [copy.split()[:-1] for copy in _instructions("COPY") if "--from" not in copy]
    sources = {source for some in copied for source in some if not source.startswith("--")}
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert lines.index("!deploy") < lines.index("deploy/*"), "of that folder only what is named after is let in"
    assert sources | {"deploy"} == {line[1:] for line in lines if line.startswith("!")}
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_holds_bytecode_that_is_used_without_a_look_at_its_source(tmp_path: Path) -> None:
    (compiling,) = (run for run in _instructions("RUN") if "compileall" in run)
    words = compiling.split()
    assert words[0] == "python"
    shutil.copytree(ROOT / "mappings", tmp_path / "mappings", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, *words[1:-1], str(tmp_path)], check=True)
    (tmp_path / "mappings" / "row_key.py").write_text("raise RuntimeError('compiled again')\n", encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    code = "import mappings.row_key; print(mappings.row_key.__file__)"
    run = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert Path(run.stdout.strip()).is_relative_to(tmp_path)


def test_the_image_runs_its_scripts_as_a_user_without_rights_and_keeps_its_state_in_a_volume() -> None:
    assert _instructions("USER") == ["eventsync"]
    assert _instructions("VOLUME") == ["/srv/eventsync/.eventsync"]
    (health,) = (check.partition("CMD ")[2] for check in _instructions("HEALTHCHECK"))
    scripts = [DEPLOY / name for words in (*_instructions("ENTRYPOINT"), health) for name in json.loads(words)]
    assert [os.access(script, os.X_OK) for script in scripts] == [True, True]
    assert not [run for run in _instructions("ENV") if A_SECRET.search(run)]
