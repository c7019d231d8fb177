"""Unicoder's recipes: their values, tables of studies, and at nano size everything through the scripts."""

import json
import re
import shutil

import pytest

from fairseq_xl.checkpoints.stacks import copy_stack
from preprocess.__main__ import main as preprocess
from preprocess.sample.__main__ import main as write_sample
from recipes.unicoder.table import table
from tests.command_line import cli
from tests.recipes.test_configurations import RECIPES, XLM, build, configuration, objectives_of
from tests.recipes.test_lohelp import run, write_pairs

pytestmark = pytest.mark.usefixtures("warm")
CONFIG = RECIPES / "unicoder/config"
FIVE = ["mlm", "tlm", "word_recovery", "paraphrase", "cross_lingual_mlm"]
SIZES = {"paper": [CONFIG / "pretrain.yaml"], "toy": [CONFIG / "pretrain.yaml", CONFIG / "toy.yaml"]}
CLASSIFICATION = {
    "paper": [XLM / "classify.yaml", CONFIG / "classify.yaml"],
    "toy": [XLM / "classify.yaml", CONFIG / "classify.yaml", CONFIG / "classify-toy.yaml"],
}


@pytest.mark.parametrize("size", SIZES)
def test_all_five_tasks_in_every_update_with_several_languages_drawn_uniformly(size, dictionary):
    cfg = configuration(SIZES[size])
    built = objectives_of(cfg, dictionary)
    assert list(built) == FIVE and cfg.task.schedule == "cycle" and cfg.optimization.update_freq[0] % 5 == 0  # U2
    assert all(objective.cfg.mixed and objective.cfg.alpha == 0 for objective in built.values())  # U2
    assert all(objective.input_length.positions <= cfg.model.max_positions for objective in built.values())


@pytest.mark.parametrize("laid_over", [[], ["toy.yaml"], ["xglue.yaml"]], ids=["paper", "toy", "xglue"])
def test_every_pretraining_ends(laid_over):
    cfg = configuration([CONFIG / name for name in ("pretrain.yaml", *laid_over)])
    assert (cfg.optimization.max_update > 0) == bool(laid_over) == (cfg.checkpoint.patience <= 0)


def test_the_papers_values(dictionary):
    cfg = configuration(SIZES["paper"])
    built = objectives_of(cfg, dictionary)
    model = cfg.model
    assert (model.layers, model.embed_dim, model.heads, model.dropout) == (12, 1024, 16, 0.1)  # U1
    assert {name: objective.cfg.length for name, objective in built.items()} == {
        "mlm": 256,
        "cross_lingual_mlm": 256,
        "tlm": 128,
        "word_recovery": 128,
        "paraphrase": 128,
    }  # U3
    batches = cfg.optimization.update_freq[0] // 5
    assert {batches * objective.cfg.batch_sentences for objective in built.values()} == {512}  # U2
    assert cfg.optimization.lr == [1e-5] and cfg.lr_scheduler._name == "inverse_sqrt"  # U2
    assert configuration(CLASSIFICATION["paper"]).dataset.batch_size == 32  # U8


def test_the_values_of_unicoder_for_xglue(dictionary):
    cfg = configuration([CONFIG / "pretrain.yaml", CONFIG / "xglue.yaml"])
    built = objectives_of(cfg, dictionary)
    model = cfg.model
    assert (model.layers, model.embed_dim, model.heads, model.language_embeddings) == (12, 768, 12, "none")  # G1
    assert list(built) == ["mlm", "tlm"] and cfg.task.schedule == "random"  # G1
    assert all(objective.cfg.mixed and objective.cfg.alpha == 0.3 for objective in built.values())  # G1, G2
    assert {cfg.optimization.update_freq[0] * objective.cfg.batch_sentences for objective in built.values()} == {8192}
    assert built["mlm"].cfg.length == 512 and cfg.optimization.lr == [3e-5]  # G1


@pytest.mark.parametrize("size", SIZES)
def test_a_classifier_starts_from_the_pretraining_of_its_size(size, dictionary):
    pretrained = build(configuration(SIZES[size]), dictionary).state_dict()
    recipient = build(configuration(CLASSIFICATION[size]), dictionary).state_dict()
    _, new = copy_stack(recipient, pretrained, "encoder", size)
    assert new == []


def test_table(tmp_path):
    for name, accuracy in (("en", 61.25), ("en-de", 70.0)):
        (tmp_path / name).mkdir()
        languages = {code: {"accuracy": accuracy, "interval": [accuracy - 3, accuracy + 4]} for code in ("en", "de")}
        scores = {"languages": languages, "accuracy": accuracy + 1}
        (tmp_path / name / "scores.json").write_text(json.dumps(scores))
    assert table(tmp_path, ["en", "de"], ["en", "en,de"]) == [
        "| trained on | en | de | average |",
        "|---|---|---|---|",
        "| en | 61.2 (58.2–65.2) | 61.2 (58.2–65.2) | 62.2 |",
        "| en + de | 70.0 (67.0–74.0) | 70.0 (67.0–74.0) | 71.0 |",
    ]


@pytest.mark.parametrize(
    "script, told",
    [
        ("finetune.sh", "MODE any: one of cross-lingual, multi-language, translate-train, translate-test"),
        ("sweep.sh", "STUDY any: one of numbers, pairs, matrix"),
    ],
)
def test_a_mode_or_study_that_there_is_not(script, told):
    done = run("bash", f"recipes/unicoder/{script}", "any", "data", "save", "files", "en,de", "random")
    assert done.returncode == 2 and done.stderr == f"{script}: {told}\n"


def test_arguments_are_looked_at_before_anything_begins(tmp_path):
    files, data = tmp_path / "files", tmp_path / "data"
    files.mkdir()
    for name in ("train.en", "valid.en", "test.en"):
        (files / f"{name}.tsv").touch()

    def told(files, languages, weights):
        command = ["cross-lingual", data, tmp_path / "save", files, languages, weights]
        done = run("bash", "recipes/unicoder/finetune.sh", *map(str, command))
        assert done.returncode == 2 and not (tmp_path / "save").exists()
        return done.stderr

    assert told(tmp_path / "no", "en", "random") == f"finetune.sh: TASK_FILES {tmp_path}/no: no such folder\n"
    for languages in ("en, de", "en de", "en,"):
        expected = f"finetune.sh: LANGUAGES {languages}: codes joined by commas, en,de\n"
        assert told(files, languages, "random") == expected
    assert "no folder of binarised text, it has no dict.txt" in told(files, "en", "random")
    data.mkdir()
    (data / "dict.txt").touch()
    assert told(files, "en", tmp_path / "no.pt") == f"finetune.sh: INIT {tmp_path}/no.pt: no such file\n"


def test_a_mode_is_checked_before_anything_is_written(tmp_path):
    run("bash", "recipes/unicoder/finetune.sh", "any", "data", tmp_path / "save", "files", "en,de", "random")
    assert not list(tmp_path.iterdir())


def test_studies_that_there_cannot_be(tmp_path):
    for study, environment, told in (
        ("pairs", {}, "pairs needs two languages or more, not en"),
        ("numbers", {"NUMBERS": "1 2"}, "NUMBERS: 2 of 1 languages"),
        ("numbers", {"NUMBERS": "all"}, "NUMBERS: all of 1 languages"),
    ):
        command = ["bash", "recipes/unicoder/sweep.sh", study, "data", tmp_path / "save", "files", "en", "random"]
        done = run("env", *(f"{key}={value}" for key, value in environment.items()), *map(str, command))
        assert done.returncode == 2 and done.stderr == f"sweep.sh: {told}\n"
    assert not list(tmp_path.iterdir())


def test_settings_are_what_is_in_files_and_folders(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("one", "same", "folder/inside"):
        (tmp_path / name).write_text("text")
    (tmp_path / "other").write_text("texts")

    def settings(*arguments):
        return succeed("bash", "-c", '. recipes/common.sh; settings_of "$@"', "any", *arguments).stdout

    one = settings(tmp_path / "one", "--lr", "-n")
    assert one.splitlines()[1:] == ["--lr", "-n"] and one == settings(tmp_path / "same", "--lr", "-n")
    assert settings(tmp_path / "folder") == settings(tmp_path / "one") != settings(tmp_path / "other")
    before = settings(tmp_path / "folder")
    (tmp_path / "folder/inside").write_text("other")
    assert settings(tmp_path / "folder") != before


def test_recipes_find_compressed_task_files(tmp_path):
    """Of the checks before anything runs; Python reads the files."""
    sourced = 'cd recipes; . ./common.sh; set -- x x x "$1" en random; . unicoder/finetuning.sh; '
    for suffix in ("", ".gz", ".xz", ".zst"):
        (tmp_path / f"train.en.tsv{suffix}").write_text("")
        for check in ("check_files", "there"):
            succeed("bash", "-c", f'{sourced}{check} "$files" train en', "any", tmp_path)
            done = run("bash", "-c", f'{sourced}{check} "$files" train de', "any", str(tmp_path))
            assert done.returncode == 2 and "train.de.tsv" in done.stderr
        (tmp_path / f"train.en.tsv{suffix}").unlink()
    scripts = [path.read_text(encoding="utf-8") for path in RECIPES.rglob("*.sh")]
    assert scripts and not [text for text in scripts if re.search(r"\[ (! )?-f [^]]*(tsv|src|translated|split)", text)]


def test_only_what_was_made_is_bound_to_its_settings(tmp_path):
    def same_settings(text):
        return run("bash", "-c", '. recipes/common.sh; same_settings "$@"', "any", str(tmp_path), text)

    assert same_settings("one").returncode == 0
    (tmp_path / "train.log").write_text("it failed\n")
    assert same_settings("two").returncode == 0
    (tmp_path / "checkpoint_last.pt").write_text("")
    assert same_settings("two").returncode == 0 and "was made with other settings" in same_settings("one").stderr


def test_a_planted_link_is_not_written_through(tmp_path):
    """What a script writes whole or not at all, it writes by `replacing`."""

    def replacing(command):
        return run("bash", "-ec", '. recipes/common.sh; replacing "$1" bash -c "$2"', "any", str(target), command)

    kept, target = tmp_path / "kept", tmp_path / "scores.json"
    for planted in (kept, tmp_path / "new"):  # a link to a file, and one to none
        kept.write_text("kept")
        (tmp_path / "scores.json.tmp").symlink_to(planted)
        assert replacing("echo new").returncode == 0
        assert (target.read_text(), target.stat().st_mode & 0o777) == ("new\n", kept.stat().st_mode & 0o777)
        assert kept.read_text() == "kept" and {path.name for path in tmp_path.iterdir()} == {"kept", "scores.json"}
    assert replacing("echo half; exit 3").returncode == 3 and target.read_text() == "new\n"
    scripts = {path: path.read_text(encoding="utf-8") for path in RECIPES.rglob("*.sh")}
    assert {path.name for path, text in scripts.items() if ".tmp" in text} == {"common.sh"}


def test_translations_of_the_test_set_are_looked_for_before_training(tmp_path):
    (tmp_path / "translate_test/de").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.en.tsv").touch()
    command = ["translate-test", "data", tmp_path / "save", tmp_path, "en,de", "random"]
    done = run("bash", "recipes/unicoder/finetune.sh", *map(str, command))
    assert done.returncode == 2 and done.stderr == (
        f"finetune.sh: {tmp_path}/translate_test/de/test.en.tsv: no such file\n"
    )


@pytest.mark.parametrize(
    "script, what, missing",
    [
        ("finetune.sh", "cross-lingual", "train.en"),
        ("finetune.sh", "cross-lingual", "test.de"),
        ("finetune.sh", "multi-language", "train.de"),
        ("finetune.sh", "multi-language", "valid.de"),
        ("finetune.sh", "translate-train", "train.de"),
        ("finetune.sh", "translate-train", "test.en"),
        ("finetune.sh", "translate-test", "valid.en"),
        ("sweep.sh", "matrix", "train.de"),
        ("sweep.sh", "pairs", "valid.en"),
        ("sweep.sh", "numbers", "test.de"),
    ],
)
def test_task_files_are_looked_for_before_anything_begins(tmp_path, script, what, missing):
    """Training text of other languages than the source may be in either folder."""
    files = tmp_path / "task files"
    (files / "translate_train").mkdir(parents=True)
    for name in ("train.en", "valid.en", "test.en", "valid.de", "test.de", "translate_train/train.de"):
        if not name.endswith(missing):
            (files / f"{name}.tsv").touch()
    command = [what, "data", tmp_path / "save", files, "en,de", "random"]
    done = run("bash", f"recipes/unicoder/{script}", *map(str, command))
    assert done.returncode == 2 and done.stderr.startswith(f"{script}: {missing}.tsv: no such file in {files}")
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "save").exists()


@pytest.mark.parametrize(
    "script", ["unicoder/smoke.sh", "veco/smoke.sh", "xglue/smoke-generation.sh", "monotrans/smoke.sh", "quickstart.sh"]
)
def test_a_sample_that_could_not_be_written_ends_the_script(tmp_path, script):
    """In a copy of the scripts, where nothing but the environment works."""
    shutil.copytree(RECIPES, tmp_path / "recipes")
    (tmp_path / "recipes/environment.sh").write_text("python() { echo failed >&2; return 3; }\n")
    done = run("bash", str(tmp_path / "recipes" / script), "--output", str(tmp_path / "out"))
    assert done.returncode == 3 and done.stderr.splitlines()[-1] == "failed"
    assert done.stderr.count("failed") == 1 and not (tmp_path / "corpora/sample/COMPLETE").exists()


def append(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write("# more\n")


@pytest.fixture
def scripts(tmp_path):
    """A copy of the recipes in which nothing is installed, no Python runs, and a pre-training writes its checkpoint."""
    shutil.copytree(RECIPES, tmp_path / "recipes")
    (tmp_path / "recipes/environment.sh").write_text("python() { return 3; }\n")
    (tmp_path / "recipes/unicoder/pretrain.sh").write_text('echo "$@" >"$2/checkpoint_last.pt"\n')
    return tmp_path / "recipes"


@pytest.mark.parametrize("model, of_negatives", [("xlm", False), ("unicoder", True), ("without-paraphrase", False)])
def test_the_comparison_is_bound_to_what_a_model_depends_on(scripts, tmp_path, model, of_negatives):
    output = tmp_path / "out"
    for code in ("en", "de"):
        append(output / "data-bin" / code / "dict.txt")
    for path in (output / "data-bin/dict.txt", output / "dan/mined.json"):
        append(path)
    command = [
        "bash",
        scripts / "unicoder/run.sh",
        *cli(output=output, langs="en,de", stages="pretrain", models=model, corpus=tmp_path),
    ]
    succeed(*command)
    made = (output / model / "checkpoint_last.pt").read_text()
    assert "--init-from" not in made and "mlm.alpha=0" in made and f"{output}/start/checkpoint_last.pt" in made
    for path in (scripts / "unicoder/config/classify.yaml", scripts / "unicoder/config/xglue.yaml"):
        append(path)
        succeed(*command)
    shared = [
        scripts / "unicoder/config/pretrain.yaml",
        scripts / "unicoder/config/toy.yaml",
        scripts / "unicoder/lohelp/pretrain.yaml",
        output / "data-bin/dict.txt",
    ]
    for path in [*shared, output / "dan/mined.json"]:
        before = path.read_bytes()
        append(path)
        done = run(*map(str, command))
        refused = path in shared or of_negatives
        assert done.returncode == (2 if refused else 0) and refused == ("made with other settings" in done.stderr)
        path.write_bytes(before)
    script = scripts / "unicoder/run.sh"
    script.write_text(script.read_text().replace("length=128", "length=64"))
    assert "made with other settings" in run(*map(str, command)).stderr


@pytest.mark.parametrize("name", ["xlm/config/classify.yaml", "sample.yaml", "unicoder/config/toy.yaml"])
def test_the_smoke_test_is_bound_to_its_configurations(scripts, tmp_path, name):
    for made in ("COMPLETE", "tasks/form/train.en.tsv"):
        append(tmp_path / "corpora/sample" / made)
    append(tmp_path / "out/data-bin/dict.txt")
    command = ["bash", scripts / "unicoder/smoke.sh", "--output", tmp_path / "out"]
    done = run(*map(str, command))
    assert done.returncode == 1 and "failed, see" in done.stderr  # no Python: it was on its way
    append(scripts / name)
    done = run(*map(str, command))
    assert done.returncode == 2 and "was made with other settings" in done.stderr


def test_models_read_as_much_in_an_update(scripts, tmp_path):
    """The limits of the tasks of each model, as the factors that were measured have it."""
    text = (scripts / "unicoder/run.sh").read_text()
    share = text[text.index("share() {") : text.index("# pretrain MODEL")]
    reads = {"mlm": 100, "tlm": 106, "word_recovery": 210, "paraphrase": 108, "cross_lingual_mlm": 104}
    for number in (2, 4, 5):
        for task, percent in reads.items():
            found = int(succeed("bash", "-c", f"{share}\nshare {task} {number}").stdout)
            assert found * number * 100 / percent == pytest.approx(5120, abs=10)


@pytest.mark.parametrize("script", ["quickstart.sh", "veco/smoke.sh", "unicoder/smoke.sh"])
@pytest.mark.parametrize("number", ["0", "x", "-1"])
def test_no_number_of_updates(tmp_path, script, number):
    done = run("bash", f"recipes/{script}", "--output", str(tmp_path / "out"), "--updates", number)
    assert done.returncode == 2 and done.stderr.endswith(f": --updates {number}: that is no number of updates\n")
    assert not list(tmp_path.iterdir())


def test_a_start_that_is_missing(tmp_path):
    done = run("bash", "recipes/unicoder/run.sh", "--output", str(tmp_path / "out"), "--start", str(tmp_path / "x.pt"))
    assert done.returncode == 2 and done.stderr == f"unicoder: --start {tmp_path}/x.pt: no such file\n"


@pytest.fixture(scope="module")
def nano(tmp_path_factory):
    """A tiny sample in two languages, binarised."""
    folder = tmp_path_factory.mktemp("unicoder")
    write_sample([str(folder / "sample"), "--documents", "40"])
    for path in (*folder.glob("sample/*/valid.*"), *folder.glob("sample/tasks/nc/[vt][ae][ls]*")):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[: 16 if path.suffix == ".tsv" else 60]))
    texts = {code: f"{{train: sample/mono/train.{code}, valid: sample/mono/valid.{code}}}" for code in ("en", "de")}
    (folder / "corpus.yaml").write_text(
        "languages: [en, de]\nvocabulary: {model: unigram, size: 300}\nmonolingual:\n"
        + "".join(f"  {code}: {text}\n" for code, text in texts.items())
        + "bitext:\n  en-de: {train: sample/bitext/train.en-de, valid: sample/bitext/valid.en-de}\n"
    )
    preprocess([str(folder / "corpus.yaml"), str(folder / "data-bin")])
    return folder


def succeed(*command):
    done = run(*map(str, command))
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def predictions(folder, language):
    return [line.split("\t") for line in (folder / f"predictions/test.{language}.tsv").read_text().splitlines()]


TWO = ["--max-update", 2]
CONFIGS = "recipes/unicoder/config"


@pytest.fixture(scope="module")
def pretrained(nano):
    """Hard negatives and all five tasks, two updates each; the checkpoint."""
    data = nano / "data-bin"
    succeed("bash", "recipes/unicoder/mine.sh", data, nano / "dan", f"{CONFIGS}/dan-toy.yaml", *TWO)
    succeed("bash", "recipes/unicoder/pretrain.sh", data, nano / "model", "random", f"{CONFIGS}/toy.yaml", *TWO)
    return nano / "model/checkpoint_last.pt"


@pytest.fixture(scope="module")
def finetuned(nano, pretrained):
    """finetuned(mode) -> its folder, made once by two updates of a classifier of topics."""
    files = nano / "sample/tasks/nc"
    (files / "translate_test/de").mkdir(parents=True)
    shutil.copy(files / "test.en.tsv", files / "translate_test/de")  # perfect translations

    def finetuned(mode, init=pretrained, languages="en,de", folder=None):
        folder = folder or nano / mode
        command = ["bash", "recipes/unicoder/finetune.sh", mode, nano / "data-bin", folder, files, languages, init]
        if not (folder / "scores.json").exists():
            succeed(*command, f"{CONFIGS}/classify-toy.yaml", *TWO)
        return folder, [*map(str, command), f"{CONFIGS}/classify-toy.yaml", *map(str, TWO)]

    return finetuned


def test_mining_and_pretraining(nano, pretrained):
    mined = [json.loads(line) for line in (nano / "dan/mined.json").read_text().splitlines()]
    assert [entry["prefix"].split("/")[-1] for entry in mined] == ["train.en-de", "valid.en-de"]
    log = (nano / "model/train.log").read_text()
    assert all(f"valid_{name}_loss" in log for name in FIVE) and pretrained.is_file()


#: mode -> (the trained model's folder, what it is trained on)
MODES = {
    "cross-lingual": [("", "en")],
    "multi-language": [("", "en,de")],
    "translate-train": [("en", "en"), ("de", "de")],
    "translate-test": [("", "en")],
}


@pytest.mark.parametrize("mode", MODES)
def test_four_modes(nano, finetuned, mode):
    folder, _ = finetuned(mode)
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["languages"].keys() == {"en", "de"}
    for part, trained in MODES[mode]:
        assert f"'train_langs': '{trained}'" in (folder / part / "train.log").read_text()
    test = {code: (nano / f"sample/tasks/nc/test.{code}.tsv").read_text().splitlines() for code in ("en", "de")}
    for code in test:
        assert [row[1] for row in predictions(folder, code)] == [line.split("\t")[0] for line in test[code]]


def test_translations_into_the_source_come_to_what_the_source_does(finetuned):
    folder, _ = finetuned("translate-test")
    scores = json.loads((folder / "scores.json").read_text())["languages"]
    assert scores["de"] == scores["en"]
    assert predictions(folder, "de") == predictions(finetuned("cross-lingual")[0], "en")


@pytest.mark.parametrize(
    "place, value",
    [(2, "multi-language"), (6, "en"), (7, "random"), (8, "recipes/xlm/config/classify-toy.yaml"), (10, "3")],
    ids=["mode", "languages", "weights", "configuration", "flag"],
)
def test_what_was_made_with_something_else_is_refused(finetuned, place, value):
    folder, command = finetuned("cross-lingual")
    before = (folder / "scores.json").read_bytes()
    command[place] = value
    done = run(*command)
    assert done.returncode == 2 and done.stderr == (
        f"finetune.sh: {folder} was made with other settings or weights; remove it or choose another SAVE_DIR\n"
    )
    assert (folder / "scores.json").read_bytes() == before


def test_other_text_and_other_weights_of_the_same_name_are_refused(nano, finetuned, tmp_path):
    weights, files = tmp_path / "weights.pt", tmp_path / "nc"
    shutil.copy(nano / "model/checkpoint_last.pt", weights)
    shutil.copytree(nano / "sample/tasks/nc", files)
    shutil.copytree(finetuned("cross-lingual")[0], tmp_path / "save")
    _, command = finetuned("cross-lingual", folder=tmp_path / "save")
    command[5], command[7] = str(files), str(weights)
    assert run(*command).returncode == 0  # the same under other names
    for path in (weights, files / "train.en.tsv"):
        with open(path, "ab") as file:
            file.write(b"more")
        assert "was made with other settings or weights" in run(*command).stderr
        shutil.copy(nano / "model/checkpoint_last.pt", weights)


#: study -> its rows, for EVALUATE=de
STUDIES = {"matrix": ["en", "de"], "pairs": ["en + de"], "numbers": ["en", "en + de"]}


@pytest.fixture(scope="module")
def study(nano):
    """study(study, languages) runs it in a folder of its own, with one update of random weights."""

    def study(name, languages="en,de", **environment):
        variables = [f"{key}={value}" for key, value in environment.items()]
        return run(
            "env",
            *variables,
            "bash",
            "recipes/unicoder/sweep.sh",
            name,
            *map(
                str,
                [
                    nano / "data-bin",
                    nano / "studies",
                    nano / "sample/tasks/nc",
                    languages,
                    "random",
                    f"{CONFIGS}/classify-toy.yaml",
                    *cli(max_update=1),
                ],
            ),
        )

    return study


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_fills_its_table(nano, study, name):
    done = study(name)
    assert done.returncode == 0, done.stderr
    rows = (nano / f"studies/{name}.md").read_text().splitlines()
    assert rows[0] == "| trained on | en | de | average |" and done.stdout.endswith("\n".join(rows) + "\n")
    assert [row.split(" |")[0] for row in rows[2:]] == [f"| {trained}" for trained in STUDIES[name]]


@pytest.mark.slow
def test_a_study_goes_on_and_is_not_one_of_other_languages(nano, study):
    assert study("matrix").returncode == 0
    table, made = nano / "studies/matrix.md", nano / "studies/matrix/en/checkpoint_last.pt"
    before, written = made.stat().st_mtime_ns, table.read_text()
    shutil.rmtree(nano / "studies/matrix/de")
    assert study("matrix").returncode == 0
    assert made.stat().st_mtime_ns == before and table.read_text() == written
    done = study("matrix", languages="en,de,fr")
    assert done.returncode == 2 and "studies/matrix/en was made with other settings" in done.stderr
    assert table.read_text() == written


@pytest.mark.slow
def test_a_study_is_evaluated_in_other_languages_than_it_trains_on(nano, study):
    done = study("numbers", languages="en", EVALUATE="de,en", NUMBERS="1")
    assert done.returncode == 2 and "studies/numbers/en was made with other settings" in done.stderr
    shutil.rmtree(nano / "studies/numbers")
    done = study("numbers", languages="en", EVALUATE="de,en", NUMBERS="1")
    assert done.stdout.splitlines()[-3] == "| trained on | de | en | average |", done.stderr


@pytest.mark.slow
def test_smoke_ends_with_its_scores(tmp_path):
    done = succeed("bash", "recipes/unicoder/smoke.sh", "--output", tmp_path, "--updates", 2)
    last = done.stdout.splitlines()[-1]
    found = [json.loads((tmp_path / mode / "scores.json").read_text()) for mode in ("cross-lingual", "multi-language")]
    zero_shot, together = (scores["accuracy"] for scores in found)
    assert last == f"unicoder zero-shot={zero_shot} multi-language={together} majority={found[0]['majority']}"


@pytest.mark.slow
def test_comparison_on_a_corpus_folder(nano, tmp_path):
    corpus, output = tmp_path / "corpus", tmp_path / "out"
    shutil.copytree(nano / "sample", corpus)
    write_pairs(corpus)
    chosen = ["--langs", "en,de", "--models", "random,xlm,without-paraphrase", "--seeds", "1", "--vocabulary", "300"]
    command = ["bash", "recipes/unicoder/run.sh", "--corpus", corpus, "--output", output, *chosen, "--updates", 2]
    tables = succeed(*command).stdout
    assert tables.endswith((output / "report.md").read_text())
    for task in ("nc", "qam"):
        for mode in ("cross-lingual", "multi-language"):
            scores = [
                json.loads((output / f"{model}/{task}-{mode}-1/scores.json").read_text())
                for model in ("random", "xlm", "without-paraphrase")
            ]
            rows = tables.split(f"| {task}-{mode}: accuracy | en | de | average |")[1].splitlines()[2:5]
            assert [row.split(" | ")[-1] for row in rows] == [f"{found['accuracy']:.1f} |" for found in scores]
    read = tables.split("| pre-training | updates | tokens an update | million tokens |")[1].splitlines()[2:4]
    assert [row.split(" | ")[:2] for row in read] == [
        ["| XLM (MLM + TLM)", "2"],
        ["| without paraphrase classification", "2"],
    ]
    for model, tasks in (("xlm", "mlm,tlm"), ("without-paraphrase", "mlm,tlm,word_recovery,cross_lingual_mlm")):
        log = (output / model / "train.log").read_text()
        names = tasks.split(",")
        assert f"'objectives': '{tasks}'" in log and f"'update_freq': [{len(names)}]" in log
        percent = {"tlm": 106, "word_recovery": 210, "paraphrase": 108, "cross_lingual_mlm": 104}
        limits = {name: 5120 * percent.get(name, 100) // 100 // len(names) for name in names}
        assert all(f"{name}.batch_tokens={limit}" in log for name, limit in limits.items())
        assert "start/checkpoint_last.pt" in log
    start, other = output / "start/checkpoint_last.pt", tmp_path / "other"
    settings = [*command[:4], "--output", other, *chosen, "--updates", 2, "--stages", "data,pretrain"]
    succeed(*settings, "--start", start)
    assert (other / "start/checkpoint_last.pt").read_bytes() == start.read_bytes()
    assert not (other / "start/train.log").exists()
    done = run(*map(str, [*settings, "--start", output / "xlm/checkpoint_last.pt"]))
    assert done.returncode == 2 and "start was made with other settings or weights" in done.stderr
    before = (output / "xlm/train.log").read_text(), (output / "report.md").read_text()
    succeed(*command)
    assert ((output / "xlm/train.log").read_text().count("begin training"), before[1]) == (
        before[0].count("begin training"),
        (output / "report.md").read_text(),
    )
