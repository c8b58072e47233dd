"""Who may connect to a listener, and what they may do there: certificates, users and ACLs."""

from logstore.logdir.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from logstore.wire.security.acls import Acls
from logstore.wire.security.tls import ClientTls, ServerTls
from logstore.wire.security.users import Users

__all__ = [
    "Acl",
    "AclFilter",
    "Acls",
    "ClientTls",
    "Operation",
    "PatternType",
    "Permission",
    "ResourceType",
    "ServerTls",
    "Users",
]
