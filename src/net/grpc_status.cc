#include "net/grpc_status.h"

#include <array>
#include <cstddef>

namespace varda::net {
namespace {

struct GrpcStatusRow {
  std::string_view name;
  Code code;  // for clients that receive the status
};

// The index is the number of the status.
constexpr std::array<GrpcStatusRow, 17> kGrpcStatuses = {
    {{"OK", Code::kInternal},
     {"CANCELLED", Code::kCancelled},
     {"UNKNOWN", Code::kInternal},
     {"INVALID_ARGUMENT", Code::kInvalid},
     {"DEADLINE_EXCEEDED", Code::kTimeout},
     {"NOT_FOUND", Code::kNotFound},
     {"ALREADY_EXISTS", Code::kAlreadyExists},
     {"PERMISSION_DENIED", Code::kForbidden},
     {"RESOURCE_EXHAUSTED", Code::kExhausted},
     {"FAILED_PRECONDITION", Code::kConflict},
     {"ABORTED", Code::kConflict},
     {"OUT_OF_RANGE", Code::kInvalid},
     {"UNIMPLEMENTED", Code::kUnsupported},
     {"INTERNAL", Code::kInternal},
     {"UNAVAILABLE", Code::kUnavailable},
     {"DATA_LOSS", Code::kCorrupt},
     {"UNAUTHENTICATED", Code::kUnauthenticated}}};

constexpr int kUnknown = 2, kFailedPrecondition = 9, kAborted = 10, kInternal = 13;

const GrpcStatusRow& row(int status) {
  const bool known = status >= 0 && static_cast<std::size_t>(status) < kGrpcStatuses.size();
  return kGrpcStatuses[static_cast<std::size_t>(known ? status : kUnknown)];
}

}  // namespace

int grpc_status_of(Code code) {
  switch (code) {
    case Code::kInternal:
      return kInternal;
    case Code::kConflict:  // "read again and retry" is ABORTED
      return kAborted;
    case Code::kGone:  // "start over", which a plain retry does not solve
      return kFailedPrecondition;
    default:
      break;
  }
  for (std::size_t i = 1; i < kGrpcStatuses.size(); ++i)
    if (kGrpcStatuses[i].code == code) return static_cast<int>(i);
  return kUnknown;
}

Code code_of_grpc_status(int status) { return row(status).code; }

std::string_view grpc_status_name(int status) { return row(status).name; }

}  // namespace varda::net
