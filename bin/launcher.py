"""The entry of bin/run, bin/test and bin/with-services, which bring the environment first."""

import sys

from launch import run, services

COMMANDS = {"run": run.main, "with-services": services.main}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))
