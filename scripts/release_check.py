"""Check the distributions of a release: ``make release-check``. It uses the network only for pip.

Each check prints one line, and the first failure ends the run. Afterwards ``build/release`` has the files that the
release workflow publishes: distributions, SBOMs, the list of licenses, and the notes of the release.
"""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from email.message import Message
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build" / "release"
TOOLS = OUTPUT / "tools" / "bin"
CONSTRAINTS = ROOT / "constraints.txt"
REPOSITORY = "https://github.com/airflow-provider-sfstream/airflow-provider-sfstream"
STARTED = time.monotonic()


@dataclass(frozen=True)
class Project:
    """A distribution: its name, its folder, and its source folders with their places in the wheel."""

    name: str
    folder: Path
    sources: dict[str, str]
    pages: tuple[str, ...] = ("LICENSE", "README.md", "pyproject.toml")

    @property
    def sdist(self) -> Path:
        return next((OUTPUT / "dist" / self.name).glob("*.tar.gz"))

    @property
    def wheel(self) -> Path:
        return next((OUTPUT / "dist" / self.name).glob("*.whl"))

    @property
    def metadata(self) -> Message:
        with ZipFile(self.wheel) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(archive.read(name))


PROVIDER = Project(
    "airflow-provider-sfstream",
    ROOT,
    {
        "airflow_provider_sfstream": "airflow_provider_sfstream",
        "pyspark_sfstream": "pyspark_sfstream",
        "dags": "airflow_provider_sfstream/example_dags",
    },
    ("LICENSE", "README.md", "pyproject.toml", "CHANGELOG.md"),
)
LOCAL_ORG = Project("sfstream-localorg", ROOT / "localorg", {"sfstream_localorg": "sfstream_localorg"})
PROJECTS = (PROVIDER, LOCAL_ORG)

PERMISSIVE = re.compile(
    r"(?i)(?!.*(GPL|GNU))(Apache|MIT|(\S+[ -])?BSD|0BSD|ISC|PSF|Python|Zlib|(The )?Unlicense|CC0|MPL|Mozilla|HPND)\b.*"
)
"""Beginnings of the names of licenses that Apache-2.0 allows for a dependency. MPL covers only its own files."""
DECIDED = {
    "openlineage_sql": "Apache-2.0 in its repository; its metadata has no license",
    "psycopg": "LGPL, imported unchanged; only the extra `postgres` needs it",
    "psycopg-binary": "as psycopg",
    "psycopg2-binary": "as psycopg; LGPL with exceptions",
    "pyruhvro": "MIT by its file LICENSE; its metadata has no license",
    "text-unidecode": "Artistic License or GPL, as the user chooses; Airflow needs it for python-slugify",
}
"""Distributions with another license, or with none in their metadata, and the reason to accept each."""


def passed(check: str, result: str) -> None:
    print(f"{time.monotonic() - STARTED:5.0f} s  {check:13} {result}", flush=True)


def require(condition: object, failure: str) -> None:
    if not condition:
        sys.exit(f"release-check: {failure}")


def run(*command: str | Path, folder: Path = ROOT, **variables: str) -> str:
    """Run a command without the settings of this shell for Python and Airflow, and return its output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "AIRFLOW"))}
    done = subprocess.run(
        command, cwd=folder, env=inherited | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    require(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}")
    return done.stdout


def environment(name: str) -> Path:
    """Create an environment without any distribution, and return its Python."""
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", OUTPUT / name)
    return OUTPUT / name / "bin" / "python"


def install(python: Path, *requirements: str | Path) -> None:
    run(TOOLS / "pip", "--python", python, "install", "--quiet", "--constraint", CONSTRAINTS, *requirements)
    run(TOOLS / "pip", "--python", python, "check")


def installed(python: Path) -> list[Distribution]:
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    return sorted(distributions(path=[str(folder)]), key=lambda each: each.name.lower())


def check_workflows() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
    run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    passed("workflows", f"{len(workflows)} files follow the schema of GitHub's workflows")


def check_changelog(version: str, tag: str) -> None:
    """Write the newest section of the changelog to ``notes.md``. A tag needs a date in its heading."""
    _, heading, notes, *_ = re.split(r"^## (.+)\n", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    require(heading.startswith(f"{version} ("), f"the newest section of CHANGELOG.md is {heading}, not {version}")
    if tag:
        require(tag == f"v{version}", f"the tag is {tag}, the version {version}")
        require(re.search(r"\(\d{4}-\d\d-\d\d\)$", heading), f"CHANGELOG.md has no date for {heading}")
    linked = re.sub(r"\]\((?!https?://|#)", f"]({REPOSITORY}/blob/v{version}/", notes)
    (OUTPUT / "notes.md").write_text(linked.strip() + "\n")
    passed("changelog", f"the newest section is {heading}")


def build(project: Project, copy: Path) -> None:
    """Build the distributions from the working tree and from the files of the commit; their bytes must be equal."""
    folders = {
        OUTPUT / "dist" / project.name: project.folder,
        OUTPUT / "again" / project.name: copy / project.folder.relative_to(ROOT),
    }
    for output, source in folders.items():
        options = ("--outdir", output, "--dependency-constraints-txt", CONSTRAINTS)
        run(TOOLS / "python", "-m", "build", *options, folder=source)
    first, second = ({file.name: file.read_bytes() for file in output.iterdir()} for output in folders)
    require(len(first) == 2, f"{project.name}: expected one sdist and one wheel, found {sorted(first)}")
    require(first == second, f"{project.name}: the build of the working tree differs from the build of the commit")
    sizes = ", ".join(f"{name} {len(content) / 1e6:.1f} MB" for name, content in sorted(first.items()))
    passed("build", f"{sizes}: same bytes twice")


def check_contents(project: Project) -> None:
    """The sdist has the sources and pages of the commit, the wheel has the sources; both have nothing else."""
    listed = run("git", "ls-files", *project.sources, *project.pages, folder=project.folder).splitlines()
    with tarfile.open(project.sdist) as archive:
        found = {each.name.partition("/")[2] for each in archive.getmembers()}
    differing = sorted(found ^ {*listed, "PKG-INFO", ".gitignore"})
    require(not differing, f"{project.sdist.name} and the commit differ in {', '.join(differing)}")
    moved = {f"{project.sources[top]}/{rest}" for top, _, rest in (name.partition("/") for name in listed) if rest}
    with ZipFile(project.wheel) as archive:
        names = set(archive.namelist())
    information = {f"/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    differing = sorted(moved ^ {name for name in names if ".dist-info/" not in name})
    require(not differing, f"{project.wheel.name} and the commit differ in {', '.join(differing)}")
    about = {name.partition(".dist-info")[2] for name in names if ".dist-info/" in name}
    require(about == information, f"{project.wheel.name} has {sorted(about)} about itself")
    passed("contents", f"{project.name}: sdist of {len(found)} files, wheel of {len(names)}")


def check_metadata(project: Project, version: str) -> None:
    metadata = project.metadata
    require(metadata["Version"] == version, f"{project.name} has version {metadata['Version']}, not {version}")
    require(metadata["License-Expression"] == "Apache-2.0", f"{project.name}: the license is not Apache-2.0")
    urls = {each.partition(",")[0] for each in metadata.get_all("Project-URL", [])}
    missing = {"Homepage", "Documentation", "Changelog", "Source", "Issues"} - urls
    require(not missing, f"{project.name} has no URL {', '.join(sorted(missing))}")
    pythons = re.findall(r"^Classifier: Programming Language :: Python :: 3\.(\d+)$", str(metadata), re.MULTILINE)
    bounds = f">=3.{min(pythons, key=int)},<3.{max(map(int, pythons)) + 1}"
    stated = metadata["Requires-Python"]
    require(set(stated.split(",")) == set(bounds.split(",")), f"{project.name}: {stated}, but classifiers {bounds}")
    passed("metadata", f"{project.name} {version}, Python {bounds}")


def check_installation(project: Project) -> None:
    """Install the sdist into an empty environment; write the SBOM of the installed distributions."""
    python = environment(f"environment-{project.name}")
    install(python, project.sdist)
    for each in python.parents[1].glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
        each.unlink()  # the SBOM would name this folder
    bill = OUTPUT / "sbom" / f"{project.wheel.stem}.cdx.json"
    options = ("--output-reproducible", "--pyproject", project.folder / "pyproject.toml", "--mc-type", "library")
    run(TOOLS / "cyclonedx-py", "environment", *options, "--output-file", bill, python)
    content = json.loads(bill.read_text())
    checksum = {"alg": "SHA-256", "content": sha256(project.wheel.read_bytes()).hexdigest()}
    content["metadata"]["component"] |= {"version": project.metadata["Version"], "hashes": [checksum]}
    bill.write_text(json.dumps(content, indent=2) + "\n")
    count = len(content["components"])
    passed("installation", f"{project.sdist.name}: `pip check` is clean, SBOM of {count} components")


def licenses(distribution: Distribution) -> str:
    """Return the license of a distribution: the SPDX expression, else the classifiers, else the free text."""
    metadata = distribution.metadata
    stated = metadata.get_all("Classifier") or []
    classifiers = [each.rpartition(" :: ")[2] for each in stated if each.startswith("License :: OSI Approved :: ")]
    text = (metadata.get("License") or "").strip().partition("\n")[0]
    return str(metadata.get("License-Expression") or " OR ".join(classifiers) or text or "unknown")


def is_permissive(license: str) -> bool:
    """Return whether one alternative of the license has only permissive parts."""
    alternatives = re.split(r" OR ", license.replace("(", "").replace(")", ""))
    return any(all(PERMISSIVE.fullmatch(part.strip()) for part in re.split(r" AND ", each)) for each in alternatives)


def check_licenses(python: Path) -> None:
    found = {each.name: licenses(each) for each in installed(python)}
    (OUTPUT / "licenses.txt").write_text("".join(f"{name}: {found[name]}\n" for name in found))
    refused = [name for name in found if not is_permissive(found[name]) and name not in DECIDED]
    require(not refused, "\n".join(["licenses to decide about:", *(f"  {name}: {found[name]}" for name in refused)]))
    unused = sorted(DECIDED.keys() - found.keys())
    require(not unused, f"decided licenses of distributions that are not installed: {', '.join(unused)}")
    passed("licenses", f"{len(found)} distributions, {len(DECIDED)} of them decided: {', '.join(sorted(DECIDED))}")


def check_tutorial() -> None:
    """Install the wheels with all extras into an empty environment; check licenses; run the tutorial."""
    python = environment("environment-tutorial")
    extras = ",".join(PROVIDER.metadata.get_all("Provides-Extra", []))
    install(python, f"{PROVIDER.name}[{extras}] @ {PROVIDER.wheel.as_uri()}", LOCAL_ORG.wheel)
    passed("installation", f"{PROVIDER.wheel.name}[{extras}]: `pip check` is clean")
    check_licenses(python)
    install(python, "polars")  # the tutorial reads its table with it
    test = "tests/integration/provider/test_tutorial.py"
    run(sys.executable, "-m", "pytest", "-q", test, SFSTREAM_TUTORIAL_PROGRAMS=str(python.parent))
    passed("tutorial", "each command works with the wheels")


def main() -> None:
    """Run all checks; the argument is the tag of the release, or empty."""
    tag = "".join(sys.argv[1:])
    version = re.search(r'^__version__ = "(.+)"', (ROOT / "airflow_provider_sfstream/__init__.py").read_text(), re.M)
    assert version is not None
    shutil.rmtree(OUTPUT, ignore_errors=True)
    (OUTPUT / "sbom").mkdir(parents=True)
    shutil.copy(CONSTRAINTS, OUTPUT)
    run(sys.executable, "-m", "venv", OUTPUT / "tools")
    run(TOOLS / "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
    run(TOOLS / "pip", "install", "--quiet", "--constraint", CONSTRAINTS, "--group", "release")
    passed("tools", f"{len(installed(TOOLS / 'python'))} distributions in {TOOLS.parent.relative_to(ROOT)}")
    check_workflows()
    check_changelog(version[1], tag)
    commit = OUTPUT / "commit"
    run("git", "archive", "--output", f"{commit}.tar", "HEAD")
    with tarfile.open(f"{commit}.tar") as archive:
        archive.extractall(commit, filter="data")
    os.environ["SOURCE_DATE_EPOCH"] = run("git", "log", "-1", "--format=%ct").strip()
    for project in PROJECTS:
        build(project, commit)
        check_contents(project)
        check_metadata(project, version[1])
    run(TOOLS / "twine", "check", "--strict", *(OUTPUT / "dist").glob("*/*"))
    passed("twine", "the metadata and the descriptions are valid")
    for project in PROJECTS:
        check_installation(project)
    check_tutorial()


if __name__ == "__main__":
    main()
