"""What README says: names and defaults are those of the program, and its commands go on from one another."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, gen_parser_from_dataclass
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf
from sentencepiece import SentencePieceProcessor

import fairseq_xl
from fairseq_xl.commands import config
from fairseq_xl.engine import initial_weights
from fairseq_xl.objectives import OBJECTIVES
from preprocess.commands.sample import main as write_sample
from recipes import experiment
from tests import reference
from tests.builders import squad, write
from tests.tasks.published_translation import Model

fairseq_xl.register()

ROOT = Path(__file__).resolve().parents[2]
#: in the order in which their commands are run
PAGES = [
    ROOT / name for name in ("preprocess/README.md", "recipes/README.md", "recipes/xlm/README.md", "recipes/answers.md")
]


def blocks(text):
    """Indented lines as text, a block each."""
    found = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    return ["".join(line[4:] for line in block.splitlines(keepends=True)) for block in found]


def commands(text):
    """Commands of indented blocks, lists of words; but those with something left out, or that stand for others."""
    lines = [line for block in blocks(text) for line in block.replace("\\\n", " ").splitlines()]
    words = [
        shlex.split(line, comments=True)
        for line in lines
        if re.match(r"fairseq-|bash recipes/(?:xlm|monotrans|unicoder|xglue)/|python -m|mkdir", line)
    ]
    placeholder = re.compile(r"…|\[--flag|[A-Z_]{4,}")
    return [line for line in words if not any(map(placeholder.fullmatch, line))]


#: each once
COMMANDS = list(
    map(list, dict.fromkeys(tuple(line) for page in PAGES for line in commands(page.read_text(encoding="utf-8"))))
)


def test_the_reference_is_that_of_the_code():
    page = reference.PAGE.read_text(encoding="utf-8")
    written = page[page.index(reference.HEADING) :]
    assert written == reference.reference(), "run `python -m tests.reference`"


def test_the_reference_has_every_name_and_says_what_it_is():
    text = reference.reference()
    for registry in (MODEL_DATACLASS_REGISTRY, OBJECTIVES):
        names = {name for name in registry if name.startswith("xl_") or registry is OBJECTIVES}
        assert names and names <= set(re.findall(r"^\| `(\w+)` ", text, re.MULTILINE))
    for row in (
        "| `xl_veco_mt_base` | 12 + 6 | 768 | 3072 | 12 | dense |",
        "| `xl_xlm_tiny` | 3 | 128 | 512 | 4 | plain, languages |",
        "| `xl_dan` | 2 | 512 | | | |",
        "| `mask_prob` | `veco_bi` | `0.25` | share of the tokens that is predicted ",
        "| `batch_sentences` | all | | maximum number of examples in a batch",
        "| `--lamb-betas` | `xl_lamb` | `(0.9, 0.999)` | ",
        "| `--source-lang`, `-s` | `xl_translation` | | ",
        "| `--framing` | all tasks | `xl` | ",
        "| `--heads` | all but `xl_dan*` | ",
    ):
        assert f"\n{row}" in text
    assert reference.table(("a | b", "`c | d`"), ("<s>", "")) == "| a \\| b | `c \\| d` |\n|---|---|\n| \\<s> | |"


def test_every_item_of_a_paper_that_is_cited_is_listed():
    papers = (ROOT / "recipes/papers.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \*\*([XUGVM]\d+b?)\*\* ", papers, re.MULTILINE)
    assert len(listed) == len(set(listed)) == 17 + 15 + 16 + 18 + 15
    folders = [path for name in ("fairseq_xl", "preprocess", "recipes", "tests") for path in (ROOT / name).rglob("*")]
    for path in [ROOT / "README.md", *folders]:
        if path.suffix in (".py", ".md", ".yaml", ".sh"):
            cited = set(re.findall(r"\b[XUGVM]\d{1,2}b?\b", path.read_text(encoding="utf-8")))
            assert cited <= set(listed), path


EVERY_PAGE = sorted(
    path
    for folder in ("", ".github", "fairseq_xl", "preprocess", "recipes")
    for path in (ROOT / folder).glob("**/*.md" if folder else "*.md")
)


def test_every_printed_experiment_lists_its_steps(monkeypatch, capsys):
    """With the values as printed: those that do not fit an experiment are refused when it is read."""
    monkeypatch.chdir(ROOT)
    lines = [line for page in EVERY_PAGE for line in commands(page.read_text(encoding="utf-8"))]
    printed = [line[3:] for line in lines if line[:3] == ["python", "-m", "recipes.experiment"] and "MODE" not in line]
    for words in printed:
        experiment.main([*(re.sub("=N$", "=1", word) for word in words), "--list"])
        assert "\n    " in capsys.readouterr().out, words
    assert len(printed) > 30


def option_names():
    """Options of fairseq's training, validation and generation, of every task, model, criterion and optimizer."""
    parsers = [options.get_training_parser(), options.get_validation_parser(), options.get_generation_parser()]
    registries = [MODEL_DATACLASS_REGISTRY, TASK_DATACLASS_REGISTRY]
    registries += [registry["dataclass_registry"] for registry in REGISTRIES.values()]
    for dataclass in {value for registry in registries for value in registry.values() if value is not None}:
        parsers.append(argparse.ArgumentParser(conflict_handler="resolve"))
        gen_parser_from_dataclass(parsers[-1], dataclass())
    return {name for parser in parsers for name in parser._option_string_actions}


def script_options(script):
    """Options that a script takes out of its arguments, or that its comment names; those of scripts that it runs."""
    text = script.read_text(encoding="utf-8")
    taken = {
        f"--{name.replace('_', '-')}" for line in re.findall(r"^ *take (.*) --", text, re.M) for name in line.split()
    }
    taken |= set(re.findall(r"--[\w-]+", text.split("\nset -")[0]))
    inner = [ROOT / "recipes" / name for name in re.findall(r'bash "\$recipes/([\w/-]+\.sh)"', text)]
    return taken.union({"--config", "--launch"}, *map(script_options, inner))


def test_printed_recipes_have_the_arguments_of_their_scripts():
    """Every one but those of results, which are those of a commit. Words in capitals stand for arguments."""
    known, checked = option_names(), 0
    for page in EVERY_PAGE:
        text = "" if "results" in page.parts else page.read_text(encoding="utf-8")
        lines = [line for block in blocks(text) for line in block.replace("\\\n", " ").splitlines()]
        lines += re.findall(r"`([^`]*)`", re.sub(r"^```.*?^```|^    .*$", "", text, flags=re.M | re.S))
        for line in (re.sub(r"\s+", " ", line) for line in lines if re.match("bash recipes/", line)):
            name, *words = shlex.split(re.split(r" [|;&>]", line)[0].replace("[", "").replace("]", ""), comments=True)[
                1:
            ]
            script = ROOT / name
            assert script.is_file(), (page, line)
            arguments = re.search(r"^arguments (.*) --", script.read_text(encoding="utf-8"), re.M)
            if not arguments or not words:
                continue
            flags = [i for i, word in enumerate(words) if re.match(r"--?[a-z][\w-]*(=|$)|\$config$", word)]
            number, expected = min([*flags, len(words)]), len(arguments[1].split())
            more = "LANGUAGE=" in script.read_text(encoding="utf-8").split("\nset -")[0]
            assert number == expected or (more and number > expected), (page, line)
            unknown = (
                {words[i].partition("=")[0] for i in flags} - known - script_options(script) - {"--flag", "$config"}
            )
            assert not unknown, (page, line, unknown)
            checked += 1
    assert checked > 60


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_headings_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"\b(?:recipes|preprocess|tests|fairseq_xl)/[\w./-]*\w", text)
    assert not [name for name in named if not ((ROOT / name).exists() or "*" in name or Path(name).name.isupper())]
    modules = re.findall(r"`((?:\w+/)*\w+\.py)`", text)
    assert not [name for name in modules if not ((page.parent / name).exists() or (ROOT / name).exists())]
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, heading = link.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, link


@pytest.mark.parametrize("system", ["xlm", "unicoder", "xglue", "veco", "monotrans"])
def test_what_differs_from_a_paper_stands_in_one_table_with_reasons(system):
    text = (ROOT / f"recipes/{system}/README.md").read_text(encoding="utf-8")
    section = text.split("\n## Differs from the paper\n")[1].split("\n## ")[0]
    rows = [re.split(r" (?<!\\)\| ", row) for row in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)]
    assert len(rows) > 10 and all(len(row) == 3 and all(map(str.strip, row)) for row in rows)
    assert not re.search("our (own )?choice", text)


def test_zero_shot_commands_select_by_the_training_language():
    """Validation text of the other languages is not there in a zero-shot setting; XGLUE's paper selects by it (G7)."""
    script, rest = r"bash recipes/(?:finetune\.sh \S+|\w+/classify\.sh) \S+ \S+ \S+ ", r"(?:[^`\n]|\n(?=\S))*"
    found = []  # page, languages of training and of evaluation, options
    for page in EVERY_PAGE:
        text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
        found += [(page, *each) for each in re.findall(rf"{script}(\S+) (\S+)({rest})", text)]
        for line in re.findall(r"fairseq-train.*", text):
            train, evaluate = (re.search(f"--{kind}-langs (\\S+)", line) for kind in ("train", "eval"))
            if train and evaluate:
                found.append((page, train[1], evaluate[1], line))
    zero_shot = [(page, train, rest) for page, train, evaluate, rest in found if train == "en" != evaluate]
    zero_shot = [each for each in zero_shot if "recipes/xglue/config/understanding.yaml" not in each[2]]
    assert len(zero_shot) >= 7
    for page, train, rest in zero_shot:
        assert f"--valid-langs {train}" in rest, (page, rest)


def test_the_readme_is_short_and_leads_to_every_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.encode()) <= 10_000
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        for link in re.findall(r"\]\(([^)\s#]+\.md)", page.read_text(encoding="utf-8")):
            linked = (page.parent / link).resolve()
            todo += [linked] if linked not in reached else []
    assert {page.resolve() for page in EVERY_PAGE} == reached


def test_commands_take_what_was_written_before(monkeypatch, capsys):
    """Folders of runs are saved in before they are read, with the same sizes; options are fairseq's or ours."""
    monkeypatch.chdir(ROOT)
    architectures = {}  # of checkpoints that no command has written
    read_architecture = lambda path, generates: ["--arch", architectures[str(Path(path).parent)]]  # noqa: E731
    monkeypatch.setattr(initial_weights, "architecture_flags", read_architecture)
    sizes, saved, logs, yaml, read, added = {}, set(), set(), {}, 0, 0
    for line in COMMANDS:
        for path in re.findall(r"(runs/[\w/-]+)/(?:checkpoint_(?:best|last)|language-module)\.pt\b", shlex.join(line)):
            assert path in saved, line
            read += 1
        if line[0] == "fairseq-train":
            given = [word for word in line[1:] if word not in ("--user-dir", "fairseq_xl")]  # it is imported already
            cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), given))
            size = cfg.model.embed_dim, cfg.model.heads
            for name in ("init_from", "init_encoder_from", "init_decoder_from"):
                if cfg.task.get(name):
                    assert sizes[str(Path(cfg.task[name]).parent)] == size
            sizes[cfg.checkpoint.save_dir], architectures[cfg.checkpoint.save_dir] = size, cfg.model._name
            saved.add(cfg.checkpoint.save_dir)
            assert cfg.common.log_file == f"{cfg.checkpoint.save_dir}/train.log"
            logs.add(cfg.common.log_file)
        elif line[0] == "fairseq-hydra-train":
            folder, name = (line[line.index(flag) + 1] for flag in ("--config-dir", "--config-name"))
            saved |= {word.partition("=")[2] for word in line if word.startswith("checkpoint.save_dir=")}
            for word in (word for word in line if word.startswith("+")):  # hydra refuses to add what is there
                parent, _, key = word[1:].partition("=")[0].rpartition(".")
                assert key not in OmegaConf.select(yaml[f"{folder}/{name}.yaml"], parent), word
                added += 1
        elif line[:2] == ["fairseq-xl", "config"] and line[-2] == ">":
            config.main(line[2:-2])
            yaml[line[-1]] = OmegaConf.create(capsys.readouterr().out)
        elif line[:2] == ["fairseq-xl", "plot", "curves"]:
            assert {word.split("=")[1] for word in line if "=" in word} <= logs
        elif line[0] == "bash":  # recipes/SYSTEM/STEP.sh DATA SAVE_DIR ..., or MODE DATA SAVE_DIR ...
            save_dir = line[4] if line[1].endswith(("generation.sh", "recipes/finetune.sh")) else line[3]
            saved.add(save_dir)
            logs.add(f"{save_dir}/train.log")
    assert len(sizes) == 6 and read > 10 and added


NANO = {
    "fairseq-train": "--max-update 2 --num-workers 0 --cpu",
    "fairseq-generate": "--max-len-a 0 --max-len-b 8 --cpu",
    "fairseq-interactive": "--max-len-a 0 --max-len-b 8 --beam 1 --buffer-size 100 --cpu",
    "fairseq-validate": "--cpu",
    "fairseq-hydra-train": "optimization.max_update=2 common.cpu=true",
    "pretrain.sh": "--max-update 2 --cpu",
    "translate.sh": "--max-update 2 --cpu",
    "unsupervised.sh": "--max-update 2 --cpu",
    "add-language.sh": "--max-update 2 --cpu",
    "finetune.sh": "--max-update 2 --cpu",
    "generation.sh": "--max-update 2 --cpu --generate='--max-len-b 8 --beam 1 --cpu'",
    "score.sh": "--max-len-a 0 --max-len-b 8 --cpu",
}
#: what is added to commands that read XLM-R: here it is tiny
TINY_XLM_R = {
    "pretrain.sh": "--arch xl_xlmr_tiny --batches-per-update 1",
    "add-language.sh": "--arch xl_monotrans_tiny --batches-per-update 1 --objective-options mlm.length=32",
}
XLM_R = "xlm-roberta-base"
#: text to be downloaded, and runs of experiments, which are listed only: tests of their own run them and report them
ELSEWHERE = {"xnli.yaml", "dataset/data/task1/tok", "runs/unicoder", "runs/translation", "translation.json"}


def write_xlm_r(folder, data_bin):
    """XLM-R in the layout of transformers, with random weights and the sub-words of a data folder."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir()
    shutil.copy(data_bin / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    pieces = SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model")).get_piece_size()
    config = transformers.XLMRobertaConfig(
        vocab_size=pieces + 2,  # <pad> and <mask> too
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    transformers.XLMRobertaForMaskedLM(config).save_pretrained(folder)


def write_xlm(folder, data_bin):
    """XLM's translation model with random weights, and text in its pieces."""
    words = Model(data_bin, folder / "mt.pth", languages=["fr", "xx", "en"]).words[20:25]
    for language in ("en", "fr"):
        (folder / f"test.{language}").write_text(" ".join(words) + "\n", "utf-8")


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path):
    """In a copy of the repository, on its sample, with as few updates as will do."""
    for name in ("recipes", "preprocess", "fairseq_xl", "setup.cfg"):
        (tmp_path / name).symlink_to(ROOT / name)
    write_sample([str(tmp_path / "corpora/my"), "--documents", "40"])
    for name, page in (("my", PAGES[0]), ("xlmr", PAGES[-1])):
        (description,) = (block for block in blocks(page.read_text("utf-8")) if block.startswith("languages:"))
        (tmp_path / f"corpora/{name}.yaml").write_text(description.replace("size: 32000", "size: 300"), "utf-8")
    for code in ("en", "de"):  # what README says of them in a comment
        text = {split: f"my/mono/{split}.{code}" for split in ("train", "valid")}
        alone = {"languages": [code], "vocabulary": {"size": 300}, "monolingual": {code: text}}
        (tmp_path / f"corpora/{code}.yaml").write_text(json.dumps(alone))
    (tmp_path / "corpora/my/tasks/ner").mkdir()
    for name in ("pretrain", "translate"):  # of one's own
        write(tmp_path / f"my/{name}.yaml", (ROOT / f"recipes/xlm/config/{name}.yaml").read_text("utf-8"))
    for code in ("en", "de", "fr"):  # first words are answers and queries, capitalized words entities
        texts = [text.split() for text in (tmp_path / f"corpora/my/mono/test.{code}").read_text("utf-8").split("\n\n")]
        paragraphs = [(" ".join(words), (f"{number}", words[0], words[0])) for number, words in enumerate(texts[:8])]
        write(tmp_path / f"corpora/my/tasks/qa/test.{code}.json", squad(*paragraphs))
        ranked = [f"{label}\t{query}\t{text}" for text, (_, query, _) in paragraphs for label in (0, 1)]
        write(tmp_path / f"corpora/my/tasks/wpr/test.{code}.tsv", *ranked)
        for split in ("train", "valid", "test"):
            text = (tmp_path / f"corpora/my/mono/train.{code}").read_text("utf-8").split()[:200]
            rows = "".join(
                f"{word}\t{'B-X' if word[0].isupper() else 'O'}\n" + "\n" * (word[-1] == ".") for word in text
            )
            (tmp_path / f"corpora/my/tasks/ner/{split}.{code}.tsv").write_text(rows, "utf-8")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(tmp_path),
    }
    (in_python,) = (block for block in blocks(PAGES[-1].read_text("utf-8")) if block.startswith("import "))
    lines = [line for line in COMMANDS if not ELSEWHERE & {*line}]
    assert len(lines) == len(COMMANDS) - 5
    done, kinds = 0, set()
    for line in [*lines, [sys.executable, "-c", in_python]]:
        kind = Path(line[1]).name if line[0] == "bash" else line[0]
        tiny = TINY_XLM_R.get(kind, "").split() if XLM_R in line else []
        if line[:2] == ["fairseq-xl", "model", "average"]:  # two updates make no epoch, whose checkpoints it reads
            run_folder = tmp_path / "runs/my/en-de"
            for number in range(1, 6):
                for name in (f"checkpoint{number}.pt", f"checkpoint_1_{number}.pt"):
                    shutil.copy(run_folder / "checkpoint_last.pt", run_folder / name)
        given, to = (line[:-2], line[-1]) if line[-2] == ">" else (line, "log")
        if "--launch" in given:  # on eight GPUs
            given = [word.replace("nproc_per_node 8", "nproc_per_node 2") for word in given]
            tiny = ["--config", "recipes/xlm/config/pretrain-toy.yaml"]
        if kind == "fairseq-xl":  # that of the working tree
            given = [sys.executable, "-m", "fairseq_xl", *given[1:]]
        listed = ["--list"] if "recipes.experiment" in line and "--list" not in line else []
        run = subprocess.run(
            [*given, *shlex.split(NANO.get(kind, "")), *tiny, *listed],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert run.returncode == 0, f"{shlex.join(given)}\n{run.stdout[-2000:]}{run.stderr[-4000:]}"
        (tmp_path / to).write_text(run.stdout)
        if line[-1] == "data-bin/my" and not (tmp_path / XLM_R).exists():
            write_xlm_r(tmp_path / XLM_R, tmp_path / "data-bin/my")
            write_xlm(tmp_path, tmp_path / "data-bin/my")
        done, kinds = done + 1, kinds | {kind}
    assert kinds >= set(NANO) and done == len(lines) + 1
    for path in (
        "my/nc/scores",
        "my/ner/scores",
        "my/ntg/scores",
        "my/retrieval",
        "toy/en-de/bleu",
        "toy/nc/scores",
        "toy/ntg/scores",
        "zero-shot/scores",
        "form-scores/scores",
    ):
        assert (tmp_path / f"runs/{path}.json").stat().st_size
