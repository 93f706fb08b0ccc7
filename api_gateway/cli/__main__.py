"""`python -m api_gateway.cli` is `sourcemill`, also where the script is not on the path."""

from api_gateway.cli.main import run

run()
