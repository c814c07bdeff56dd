"""Fines for late loans, in cents."""
from datetime import date

CENTS_A_DAY = 20
MOST_CENTS = 1000
CHILD_SHARE = 0.5


def fine_of(loan, member, today):
    """Returns the fine of a loan: by days, at most MOST_CENTS, half for children."""
    cents = loan.days_late(today) * CENTS_A_DAY
    cents = min(cents, MOST_CENTS)
    if member.is_child:
        cents = int(cents * CHILD_SHARE)
    return cents


def fines_of(store, number, today):
    member = store.members[number]
    total = 0
    for loan in store.loans:
        if loan.member == number:
            total += fine_of(loan, member, today)
    return total


def late_members(store, today):
    late = {}
    for loan in store.open_loans():
        if loan.days_late(today) > 0:
            late.setdefault(loan.member, []).append(loan.isbn)
    return late


def letter(store, number, today):
    member = store.members[number]
    lines = [f"Dear {member.name},", "", "please bring back:"]
    for loan in store.open_loans(member=number):
        if loan.days_late(today) > 0:
            title = store.titles[loan.isbn]
            lines.append(f"- {title.name} by {title.author}, due {loan.due}")
    lines += ["", f"Your fine so far is {fines_of(store, number, today) / 100:.2f}."]
    return "\n".join(lines)
