"""What a lending library keeps: titles, members, loans."""
from dataclasses import dataclass, field
from datetime import date


@dataclass
class Title:
    isbn: str
    name: str
    author: str
    copies: int = 1
    shelf: str = "general"


@dataclass
class Member:
    number: int
    name: str
    joined: date
    is_child: bool = False
    notes: list = field(default_factory=list)

    def limit(self):
        """Returns how many titles the member may have at once."""
        return 3 if self.is_child else 8


@dataclass
class Loan:
    isbn: str
    member: int
    taken: date
    due: date
    returned: date = None

    def is_open(self):
        return self.returned is None

    def days_late(self, today):
        """Returns by how many days the loan is late; 0 if it is not."""
        end = self.returned or today
        return max(0, (end - self.due).days)
