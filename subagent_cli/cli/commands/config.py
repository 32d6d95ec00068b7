"""`subagent config`."""

from subagent_cli.cli.output import Table
from subagent_cli.cli.verb import Answer, Context, verb
from subagent_cli.services.settings import SETTINGS


@verb("config", example="subagent config")
def command(context: Context) -> Answer:
    """Show every setting and where it comes from.

    In this order: an option (--runs-dir, --json, --set NAME=VALUE), an environment variable (SUBAGENT_NAME), the
    project's subagent.toml, the user's config.toml, the default. JSON has times in milliseconds.
    """
    data = {
        setting.name: {
            "value": context.settings[setting.name].value,
            "source": context.settings[setting.name].source,
            "variable": setting.variable,
            "help": setting.help,
        }
        for setting in SETTINGS
    }
    rows = [
        (setting.name, setting.show(context.settings[setting.name].value), data[setting.name]["source"], setting.help)
        for setting in SETTINGS
    ]
    return Answer(data, table=lambda: Table(("SETTING", "VALUE", "FROM", "MEANING"), rows, ""))
