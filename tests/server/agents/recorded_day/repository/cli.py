"""The command line: lend, back, late, letter."""
import argparse
from datetime import date

from fines import fines_of, late_members, letter
from store import Store


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default="library.json")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("lend", "back"):
        command = commands.add_parser(name)
        command.add_argument("isbn")
        command.add_argument("member", type=int)
    commands.add_parser("late")
    command = commands.add_parser("letter")
    command.add_argument("member", type=int)
    return parser.parse_args()


def main():
    options = parse()
    store = Store(options.file)
    store.load()
    today = date.today()
    if options.command == "lend":
        loan = store.lend(options.isbn, options.member, today)
        print(f"due {loan.due}")
        store.save()
    elif options.command == "back":
        store.take_back(options.isbn, options.member, today)
        print(f"fine so far {fines_of(store, options.member, today)} cents")
        store.save()
    elif options.command == "late":
        for number, isbns in late_members(store, today).items():
            print(number, *isbns)
    else:
        print(letter(store, options.member, today))


if __name__ == "__main__":
    main()
