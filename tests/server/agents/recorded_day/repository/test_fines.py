from datetime import date
from types import SimpleNamespace

from fines import fine_of, late_members
from models import Loan, Member

ADULT = Member(1, "Ada", date(2020, 1, 1))
CHILD = Member(2, "Ben", date(2021, 5, 4), is_child=True)


def loan(due, returned=None, member=1):
    return Loan("111", member, date(2024, 1, 1), due, returned)


def test_a_loan_in_time_costs_nothing():
    assert fine_of(loan(date(2024, 2, 1)), ADULT, date(2024, 1, 31)) == 0


def test_a_late_loan_costs_by_days():
    assert fine_of(loan(date(2024, 2, 1)), ADULT, date(2024, 2, 6)) == 100


def test_a_child_pays_half():
    assert fine_of(loan(date(2024, 2, 1)), CHILD, date(2024, 2, 6)) == 50


def test_a_fine_has_a_bound():
    assert fine_of(loan(date(2024, 2, 1)), ADULT, date(2025, 2, 6)) == 1000


def test_late_members_are_those_with_open_late_loans():
    store = SimpleNamespace(open_loans=lambda: [loan(date(2024, 2, 1)), loan(date(2024, 3, 1))])
    assert late_members(store, date(2024, 2, 10)) == {1: ["111"]}
