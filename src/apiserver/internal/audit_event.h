// One request as an event of the audit log.
#pragma once

#include "apiserver/audit.h"
#include "apiserver/internal/dialect.h"

namespace varda::apiserver {

struct AuditTimes {
  WallTime received, answered;
};

/// Nothing for what is no use to anybody: the probes of health, which are open to all. Streams say ResponseStarted, since they end
/// long after the answer began; everything else says ResponseComplete. Pure.
std::optional<Json> audit_event(const Call& call, const net::Response& response, AuditLevel level, std::string id,
                                const AuditTimes& times);

}  // namespace varda::apiserver
