// One request as an event of the audit log.
#pragma once

#include "apiserver/audit.h"
#include "apiserver/internal/dialect.h"

namespace varda::apiserver {

struct AuditTimes {
  WallTime received, answered;
};

/// nullopt for health probes, which need no authentication. The stage of a stream is
/// ResponseStarted, since it ends long after the answer began. Other requests have
/// ResponseComplete. Pure.
std::optional<Json> audit_event(const Call& call, const net::Response& response, AuditLevel level,
                                std::string id, const AuditTimes& times);

}  // namespace varda::apiserver
