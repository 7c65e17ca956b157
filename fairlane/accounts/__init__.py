"""Tenants and keys: who may come in, as whom, and what each may do."""

from fairlane.accounts.accounts import Accounts
from fairlane.accounts.secret import Claim, claim_of
from fairlane.accounts.values import Account, Caller, KeyView, Role

__all__ = ["Account", "Accounts", "Caller", "Claim", "KeyView", "Role", "claim_of"]
