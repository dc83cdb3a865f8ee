"""What coverage is guaranteed, by which theorem, on what condition; and `plan`, the inverse."""

from .certificate import Certificate
from .certifier import Certifier
from .certify import certificate_for, certify, make_certificate, paper_bound
from .plan import Plan, plan

__all__ = [
    "Certificate",
    "Certifier",
    "Plan",
    "certificate_for",
    "certify",
    "make_certificate",
    "paper_bound",
    "plan",
]
