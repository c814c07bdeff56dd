"""Keeps titles, members and loans in one JSON file."""
import json
from dataclasses import asdict
from datetime import date, timedelta

from models import Loan, Member, Title

LOAN_DAYS = 21


class Store:
    def __init__(self, path):
        self.path = path
        self.titles = {}
        self.members = {}
        self.loans = []

    def load(self):
        with open(self.path) as file:
            data = json.load(file)
        for entry in data["titles"]:
            self.titles[entry["isbn"]] = Title(**entry)
        for entry in data["members"]:
            entry["joined"] = date.fromisoformat(entry["joined"])
            self.members[entry["number"]] = Member(**entry)
        for entry in data["loans"]:
            for name in ("taken", "due", "returned"):
                if entry[name]:
                    entry[name] = date.fromisoformat(entry[name])
            self.loans.append(Loan(**entry))

    def save(self):
        data = {
            "titles": [asdict(title) for title in self.titles.values()],
            "members": [asdict(member) for member in self.members.values()],
            "loans": [asdict(loan) for loan in self.loans],
        }
        with open(self.path, "w") as file:
            json.dump(data, file, default=str, indent=1)

    def open_loans(self, isbn=None, member=None):
        found = [loan for loan in self.loans if loan.is_open()]
        if isbn is not None:
            found = [loan for loan in found if loan.isbn == isbn]
        if member is not None:
            found = [loan for loan in found if loan.member == member]
        return found

    def lend(self, isbn, number, today):
        title = self.titles[isbn]
        member = self.members[number]
        if len(self.open_loans(isbn=isbn)) >= title.copies:
            raise ValueError("no copy is here")
        if len(self.open_loans(member=number)) >= member.limit():
            raise ValueError("the member has too many titles")
        loan = Loan(isbn, number, today, today + timedelta(days=LOAN_DAYS))
        self.loans.append(loan)
        return loan

    def take_back(self, isbn, number, today):
        for loan in self.open_loans(isbn=isbn, member=number):
            loan.returned = today
            return loan
        raise ValueError("the member does not have this title")
