"""``python -m fairseq_xl`` is the command ``fairseq-xl``."""

from fairseq_xl.commands import main

if __name__ == "__main__":
    main()
