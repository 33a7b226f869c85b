"""`accelshare sbom`: print the bill of materials.

Belongs here: from argv to a document. Never: how it is read or spelled.
"""

from pathlib import Path

import click

from accelshare.terminal import echo_document


@click.command(short_help="Print what this installation consists of.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Write it into this file instead.")
def sbom(file: Path | None) -> None:
    """Print the bill of materials of this installation as CycloneDX JSON.

    It names accelshare, every Python distribution beside it, the interpreter, and the system's packages where dpkg keeps a list.
    """
    from accelshare.sbom import installed
    from accelshare.sbom.cyclonedx import document

    python = installed.python_parts()
    (subject,) = [part for part in python if part.name == "accelshare"]
    others = [part for part in python if part is not subject]
    text = document(subject, [*others, installed.interpreter(), *installed.system_parts()])
    if file is None:
        echo_document(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
