"""abi/check-changelog, in a repository made for the purpose, and on the project's own."""
import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "abi/check-changelog"
# Nobody's configuration, and no way out of the scratch folder into a repository around it.
ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
               "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
               "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}


class Repository:
    def __init__(self, root):
        self.root = root
        self.environment = ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(root.parent)}
        for folder in ("abi", "include", "src"):
            (root / folder).mkdir(parents=True)
            (root / folder / "file").write_text("one\n")
        shutil.copy(SCRIPT, root / "abi")
        (root / "CHANGELOG.md").write_text("# Changelog\n\n- first\n")

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.root, *arguments], check=True, env=self.environment, capture_output=True)

    def append(self, file, text="more\n", commit=True):
        with open(self.root / file, "a") as f:
            f.write(text)
        if commit:
            self.git("add", "-A")
            self.git("commit", "-m", file)

    def check(self, *arguments):
        return subprocess.run([self.root / "abi/check-changelog", *arguments], env=self.environment,
                              capture_output=True, text=True)

    def passes(self, *arguments):
        return self.check(*arguments).returncode == 0


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "repository")
    made.git("init", "-b", "main")
    made.git("add", "-A")
    made.git("commit", "-m", "first")
    made.git("tag", "v1.0.0")
    return made


@pytest.mark.parametrize("file", ["abi/file", "abi/new", "include/file", "include/new"])
def test_change_of_the_interface(repository, file):
    assert repository.passes()
    repository.append(file, commit=False)
    assert file in repository.check().stderr.splitlines()
    repository.append(file)
    assert file in repository.check().stderr.splitlines()
    repository.append("CHANGELOG.md", "- second\n")
    assert repository.passes()


def test_change_of_something_else(repository):
    repository.append("src/file")
    assert repository.passes()


def test_removed_file(repository):
    (repository.root / "include/file").unlink()
    assert not repository.passes()


@pytest.mark.parametrize("line", ["\n", "---\n"])
def test_line_without_words_does_not_count(repository, line):
    repository.append("include/file")
    repository.append("CHANGELOG.md", line)
    assert not repository.passes()


def test_removed_line_does_not_count(repository):
    repository.append("include/file")
    (repository.root / "CHANGELOG.md").write_text("# Changelog\n")
    assert not repository.passes()


def test_each_release_needs_its_own_line(repository):
    repository.append("include/file")
    repository.append("CHANGELOG.md", "- second\n")
    repository.git("tag", "v1.1.0")
    assert repository.passes()
    repository.append("include/file")
    assert not repository.passes()
    repository.git("tag", "something")
    assert not repository.passes()


def test_branch(repository):
    repository.append("CHANGELOG.md", "- of others, since the release\n")
    repository.git("checkout", "-b", "branch")
    repository.append("abi/file")
    assert repository.passes() and not repository.passes("main") and not repository.passes("main", "branch")
    repository.git("checkout", "main")
    repository.append("CHANGELOG.md", "- of others, meanwhile\n")
    assert not repository.passes("main", "branch")
    repository.git("checkout", "branch")
    repository.append("CHANGELOG.md", "- of the branch\n")
    assert repository.passes("main") and repository.passes("main", "branch")
    assert not repository.passes("nonsense")


def test_before_the_first_release(repository):
    repository.git("tag", "-d", "v1.0.0")
    assert repository.passes()
    (repository.root / "CHANGELOG.md").write_text("")
    assert not repository.passes()


def test_without_a_repository(tmp_path):
    lone = Repository(tmp_path / "lone")
    assert lone.passes() and "nothing to compare with" in lone.check().stdout
    assert not lone.passes("main")
    # Within somebody else's.
    around = Repository(tmp_path / "around")
    around.git("init")
    inside = Repository(tmp_path / "around/src/hostpin")
    inside.environment = around.environment
    assert "nothing to compare with" in inside.check().stdout


def test_checkout_of_another_user(repository):
    repository.append("include/file")
    repository.environment["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("status")
    assert "include/file" in repository.check().stderr.splitlines()


def test_checkout_that_git_cannot_read(repository):
    shutil.rmtree(repository.root / ".git")
    (repository.root / ".git").write_text("gitdir: /nonexistent\n")
    assert not repository.passes()


def test_colours_do_not_hide_a_line(repository):
    repository.git("config", "color.ui", "always")
    repository.append("include/file")
    repository.append("CHANGELOG.md", "- second\n")
    assert repository.passes()


def test_this_project():
    run = subprocess.run([SCRIPT], capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, run.stderr
