"""Unicoder's recipes: their values, their experiments' tables, and at nano size everything through the scripts."""

import itertools
import json
import re
import shutil

import pytest

from fairseq_xl.errors import UserError
from fairseq_xl.io.flags import expanded
from preprocess.commands.prepare import main as preprocess
from recipes import experiment, experiment_file
from recipes.experiment_file import Experiment
from recipes.settings import Digests
from tests.recipes.configurations import RECIPES
from tests.recipes.scripts import run, write_pairs
from tests.recipes.unicoder_script import COMPARISON, FINETUNE, accuracies, drive, write

pytestmark = pytest.mark.usefixtures("warm")
CONFIG = RECIPES / "unicoder/config"
FIVE = ["mlm", "tlm", "word_recovery", "paraphrase", "cross_lingual_mlm"]


def test_tables_of_two_ways_to_fine_tune_beside_a_baseline(tmp_path, capsys):
    """A passage is told by its word: English by itself, German by itself alone, so that zero-shot is half right."""
    write(tmp_path / "out/unicoder/nc-cross-lingual-1/scores.json", accuracies(en=70.0, de=50.0))
    write(tmp_path / "out/unicoder/nc-multi-language-1/scores.json", accuracies(en=72.0, de=70.0))
    folder = tmp_path / "tasks/nc"
    (folder / "translate_train").mkdir(parents=True)
    for code, words in (("en", ("cells", "pages")), ("de", ("zahlen", "bild"))):
        lines = [f"{label}\t{word}\n" for label, word in zip("01", words)]
        (folder / "translate_train" / f"train.{code}.tsv").write_text("".join(3 * lines))
        (folder / f"test.{code}.tsv").write_text("".join(lines))
    shutil.copy(folder / "translate_train/train.en.tsv", folder)
    values = [f"corpus={tmp_path}", "others=de", "seeds=1", "models=unicoder", "tasks=nc"]
    drive(COMPARISON, *values, output=tmp_path / "out", only=["baseline", "report"])
    alone, together = re.findall(r"^\| nc-.*?\n(?:\n|\Z)", capsys.readouterr().out, re.MULTILINE | re.DOTALL)
    tfidf = "tf-idf, logistic regression"
    assert "| Unicoder | 70.0 | 50.0 | 60.0 |" in alone and f"| {tfidf} | 100.0 | 50.0 | 75.0 |" in alone
    assert "| Unicoder | 72.0 | 70.0 | 71.0 |" in together
    assert f"| {tfidf}, each language alone | 100.0 | 100.0 | 100.0 |" in together
    assert "| majority | 50.0 | 50.0 | 50.0 |" in alone and "| majority | 50.0 | 50.0 | 50.0 |" in together


def test_task_files_are_looked_for_before_anything_begins(tmp_path):
    """Empty ones, compressed ones too; training text of other languages than the source is in the second folder."""
    files, save = tmp_path / "task files", tmp_path / "save"
    for name in ("train.en", "valid.en", "test.en", "valid.de", "test.de", "translate_train/train.de"):
        (files / f"{name}.tsv").parent.mkdir(parents=True, exist_ok=True)
        (files / f"{name}.tsv").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/dict.txt").touch()
    values = [f"data={tmp_path}/data", f"files={files}", "others=de"]

    def refused(step):
        with pytest.raises(UserError) as error:
            drive(FINETUNE, *values, output=save, only=[step])
        assert not save.exists()
        return str(error.value)

    for step, missing, suffix in (
        *(("cross-lingual", "test.de", ""), ("multi-language", "valid.de", ".gz"), ("matrix", "train.de", ".zst")),
        *(("translate-train", "train.de", ".xz"), ("translate-test", "valid.en", "")),
    ):
        chosen = Experiment(FINETUNE, values, save).select([step])
        (found,) = files.rglob(f"{missing}.tsv")
        there = found.rename(f"{files}/{missing}.tsv{suffix}")
        # there is no translated test set here
        experiment_file.check_files([each for each in chosen if not each.name.startswith("translat")])
        there.unlink()
        assert f": {missing}.tsv: no such file in {files}" in refused(step)
        found.touch()
    sentence = f"step translated/de: test.en.tsv: no such file in {files}/translate_test/de"
    assert refused("translate-test") == sentence


def test_recipes_find_compressed_task_files(tmp_path):
    """Of the checks before anything runs; Python reads the files."""
    for code, suffix in {"en": "", "de": ".gz", "fr": ".xz", "ru": ".zst"}.items():
        (tmp_path / f"train.{code}.tsv{suffix}").write_text("")
    script = '. recipes/common.sh; for code in en de fr ru es; do check_files "$1" train $code; echo $code; done'
    done = run("bash", "-c", script, "any", tmp_path)
    assert done.returncode == 2 and done.stdout.split() == "en de fr ru".split() and "train.es.tsv" in done.stderr
    scripts = [path.read_text(encoding="utf-8") for path in RECIPES.rglob("*.sh")]
    assert scripts and not [text for text in scripts if re.search(r"\[ (! )?-f [^]]*(tsv|src|translated|split)", text)]


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


def test_the_comparison_is_bound_to_what_a_model_depends_on(tmp_path):
    """Files in the output folder begin with {output}; only Unicoder reads the negatives."""
    for name in ("data-bin/dict.txt", "dan/mined.json", "start/checkpoint_last.pt"):
        write(tmp_path / name, {})
    steps = {step.name: step for step in Experiment(COMPARISON, (), tmp_path).select([])}
    names = ("config/pretrain", "config/toy", "lohelp/pretrain")
    expected = {f"recipes/unicoder/{name}.yaml" for name in names}
    expected |= {"{output}/data-bin", "{output}/start/checkpoint_last.pt"}
    for model, more in (("xlm", set()), ("unicoder", {"{output}/dan/mined.json"}), ("without-paraphrase", set())):
        assert set(steps[f"pretrain/{model}"].record(Digests())["files"]) == expected | more


def test_models_read_as_much_in_an_update(tmp_path):
    """The limits of the tasks of each model, as the factors that were measured have it."""
    reads = {"mlm": 100, "tlm": 106, "word_recovery": 210, "paraphrase": 108, "cross_lingual_mlm": 104}
    found = {}
    for step in Experiment(COMPARISON, (), tmp_path).steps:
        if step.name == "start" or step.name.startswith("pretrain/"):
            script = step.commands[0].index("recipes/unicoder/pretrain.sh")
            words = step.commands[0][script + 4 :]  # after DATA, SAVE_DIR and INIT
            flags = dict(itertools.pairwise(expanded(["--config", str(CONFIG / "pretrain.yaml"), *words])))
            settings = flags["--objective-options"].split()
            limits = dict(re.findall(r"(\w+)\.batch_tokens=(\d+)", flags["--objective-options"]))
            names = flags["--objectives"].split(",")
            assert flags["--update-freq"] == str(len(names))
            for task in names:
                assert {f"{task}.length=128", f"{task}.mixed=true", f"{task}.alpha=0"} < set(settings)
                assert int(limits[task]) * len(names) * 100 / reads[task] == pytest.approx(5120, abs=10)
            found[step.name] = set(names)
    left_out = ("word_recovery", "paraphrase", "cross_lingual_mlm")
    without = {f"pretrain/without-{task}": {*FIVE} - {task} for task in left_out}
    two = {"mlm", "tlm"}
    assert found == {"start": two, "pretrain/xlm": two, "pretrain/unicoder": {*FIVE}} | without


def test_a_start_that_is_missing(tmp_path):
    made = Experiment(COMPARISON, [f"start={tmp_path}/x.pt"], tmp_path / "out")
    assert not [step for step in made.select([]) if step.name == "start"]
    with pytest.raises(UserError, match=f"step pretrain/xlm: x.pt: no such file in {tmp_path}"):
        drive(COMPARISON, f"start={tmp_path}/x.pt", output=tmp_path / "out", only=["pretrain"])
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def nano(tmp_path_factory, copy_sample):
    """A tiny sample in two languages, binarised."""
    folder = tmp_path_factory.mktemp("unicoder")
    copy_sample(folder / "sample")
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
    succeed("bash", "recipes/unicoder/mine.sh", data, nano / "dan", "--config", f"{CONFIGS}/dan-toy.yaml", *TWO)
    succeed(
        "bash", "recipes/unicoder/pretrain.sh", data, nano / "model", "random", "--config", f"{CONFIGS}/toy.yaml", *TWO
    )
    return nano / "model/checkpoint_last.pt"


@pytest.mark.slow
def test_mining_and_pretraining_from_raw_text(nano, tmp_path):
    """On the folder that fairseq-preprocess wrote; all five tasks are trained."""
    corpus, data = nano / "corpus.yaml", tmp_path / "dan/data-bin"
    succeed("bash", "recipes/unicoder/mine.sh", corpus, tmp_path / "dan", "--config", f"{CONFIGS}/dan-toy.yaml", *TWO)
    start = ["bash", "recipes/unicoder/pretrain.sh", data, tmp_path / "model", "random"]
    assert (data / "en-de/train.en-de.negatives.npy").exists() and not (data / "en").exists()
    shown = succeed(*start, "--config", f"{CONFIGS}/toy.yaml", *TWO).stdout
    assert all(f"| {task}_loss" in shown for task in FIVE)


@pytest.fixture(scope="module")
def finetune(nano, pretrained):
    """finetune(step, name=value ...) runs steps of finetune.yaml with two updates of a classifier of topics."""
    files = nano / "sample/tasks/nc"
    (files / "translate_test/de").mkdir(parents=True)
    shutil.copy(files / "test.en.tsv", files / "translate_test/de")  # perfect translations
    values = {"data": nano / "data-bin", "files": files, "others": "de", "init": pretrained}
    values |= {"settings": f"--config {CONFIGS}/finetune-toy.yaml"}

    def finetune(*steps, output=nano / "modes", updates=2, **changed):
        words = [f"{name}={value}" for name, value in (values | changed).items() if value]
        drive(FINETUNE, *words, output=output, only=steps, updates=updates)
        return output

    return finetune


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
    "translate-test": [("en", "en")],
}


@pytest.mark.parametrize(
    "mode",
    ["cross-lingual", "translate-test", *(pytest.param(mode, marks=pytest.mark.slow) for mode in list(MODES)[1:3])],
)
def test_four_modes(nano, finetune, mode):
    folder = finetune(mode) / mode
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["languages"].keys() == {"en", "de"}
    for part, trained in MODES[mode]:
        log = (folder / part / "train.log").read_text()
        assert f"'train_langs': '{trained}'" in log and f"'init_from': '{nano}/model/checkpoint_last.pt'" in log
    test = {code: (nano / f"sample/tasks/nc/test.{code}.tsv").read_text().splitlines() for code in ("en", "de")}
    for code in test:
        assert [row[1] for row in predictions(folder, code)] == [line.split("\t")[0] for line in test[code]]
    if mode == "translate-test":  # with perfect translations
        assert scores["languages"]["de"] == scores["languages"]["en"]
        assert predictions(folder, "de") == predictions(finetune("cross-lingual") / "cross-lingual", "en")


#: study -> its rows
STUDIES = {"numbers": ["en", "en,de"], "pairs": ["en,de"], "matrix": ["en", "de"]}


def test_the_ablation_leaves_out_one_task_at_a_time(tmp_path):
    """U11: three pre-trainings beside Unicoder's, with 512 examples of each remaining task, and XLM's fine-tuning."""
    steps = {step.name: step for step in Experiment(RECIPES / "unicoder/ablation.yaml", (), tmp_path).select([])}
    trained = {name: step.commands[0] for name, step in steps.items() if name.startswith("pretrain/")}
    names = {name: command[command.index("--objectives") + 1].split(",") for name, command in trained.items()}
    absent = {name.split("without-")[-1]: [task for task in FIVE if task not in tasks] for name, tasks in names.items()}
    assert absent.pop("pretrain/unicoder") == [] and absent == {task: [task] for task in FIVE[2:]}
    for name, command in trained.items():
        assert int(command[command.index("--batches-per-update") + 1]) == 8 * len(names[name])
        assert steps["mine"] in steps[name].required_steps
    assert len([name for name in steps if name.startswith("finetune/")]) == 5
    for name, arch in (("xnli-xlm", "xl_xlm_xnli15"), ("xnli-mbert", "xl_bert_base")):
        made = Experiment(RECIPES / f"unicoder/{name}.yaml", (), tmp_path)
        assert f" --arch {arch} " in " ".join(made.select(["multi-language"])[0].commands[0])


@pytest.mark.slow
def test_the_ablation_at_nano_size(nano, pretrained, capsys):
    files, toy = nano / "sample/tasks/nc", f"--config {CONFIGS}/finetune-toy.yaml --arch xl_xlm_tiny"
    values = {"data": nano / "data-bin", "xlm": pretrained, "files": files, "languages": "en,de", "settings": toy}
    values |= {"models": "without-paraphrase,xlm", "mining": f"--config {CONFIGS}/dan-toy.yaml"}
    (nano / "batches.yaml").write_text("update-freq: null\n")
    values |= {"pretraining": f"--config {CONFIGS}/toy.yaml --config {nano}/batches.yaml"}
    words = [f"{name}={value}" for name, value in values.items()]
    drive(RECIPES / "unicoder/ablation.yaml", *words, output=nano / "ablation", only=["finetune", "report"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[2:4]] == ["| without paraphrase classification", "| XLM"] and all(rows[2])
    assert " | ".join(rows[4]) == "| without paraphrase classification (Huang et al. 2019, table 2) | 85.5 | 81.1 |  |"


@pytest.mark.slow
def test_studies_fill_their_tables_and_go_on(nano, finetune, capsys):
    def study(*steps, **changed):
        folder = finetune(*steps, "report", output=nano / "studies", updates=1, init="", **changed)
        text = capsys.readouterr().out
        assert text == (folder / "report.md").read_text()
        return text

    tables = study(*STUDIES)
    for name, rows in STUDIES.items():
        lines = tables[tables.index(f"| {name}: trained on | en | de | average |") :].split("\n\n")[0].splitlines()
        assert [row.split(" |")[0] for row in lines[2:]] == [f"| {trained}" for trained in rows]
        assert re.fullmatch(r"\| [\w,]+( \| \d+\.\d \(\d+\.\d–\d+\.\d\)){2} \| \d+\.\d \|", lines[2])
    made = nano / "studies/matrix/en/checkpoint_last.pt"
    before = made.stat().st_mtime_ns
    shutil.rmtree(nano / "studies/matrix/de")
    assert study("matrix") == tables and made.stat().st_mtime_ns == before
    with pytest.raises(UserError, match="studies/numbers/en was made with other settings"):
        study("numbers", evaluate="de,en", numbers="1")
    shutil.rmtree(nano / "studies/numbers")
    assert "| numbers: trained on | de | en | average |" in study("numbers", evaluate="de,en", numbers="1")


@pytest.mark.slow
def test_comparison_on_a_corpus_folder(nano, tmp_path, capsys):
    corpus, output = tmp_path / "corpus", tmp_path / "out"
    shutil.copytree(nano / "sample", corpus)
    write_pairs(corpus)
    values = [f"corpus={corpus}", "others=de", "models=random,xlm,without-paraphrase", "seeds=1", "vocabulary=300"]
    command = [str(COMPARISON), *values, "--updates", "2"]
    experiment.main([*command, "--output", str(output)])
    tables = capsys.readouterr().out
    assert tables == (output / "report.md").read_text()
    for task in ("nc", "qam"):
        for mode in ("cross-lingual", "multi-language"):
            scores = [
                json.loads((output / f"{model}/{task}-{mode}-1/scores.json").read_text())
                for model in ("random", "xlm", "without-paraphrase")
            ]
            rows = tables.split(f"| {task}-{mode}: accuracy | en | de | average |")[1].splitlines()[2:5]
            assert [row.split(" | ")[-1] for row in rows] == [f"{found['accuracy']:.1f} |" for found in scores]
            assert (output / f"{task}-{mode}.png").stat().st_size
    read = tables.split("| pre-training | updates | tokens per update | million tokens |")[1].splitlines()[2:4]
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
        assert "start/checkpoint_last.pt" in log and "'seed': 1," in log
    assert not (output / "dan").exists()  # no model here reads negatives
    start = output / "start/checkpoint_last.pt"
    other = [*command, "--only", "pretrain/xlm", "--output", str(tmp_path / "other")]
    experiment.main([*other, f"start={start}", "pretraining-seed=2"])
    log = (tmp_path / "other/xlm/train.log").read_text()
    assert str(start) in log and "'seed': 2," in log and not (tmp_path / "other/start").exists()
    with pytest.raises(UserError, match="other/xlm was made with other settings or weights"):
        experiment.main([*other, f"start={output}/xlm/checkpoint_last.pt", "pretraining-seed=2"])
    before = (output / "xlm/train.log").read_text(), tables
    experiment.main([*command, "--output", str(output)])
    assert ((output / "xlm/train.log").read_text(), capsys.readouterr().out) == before
