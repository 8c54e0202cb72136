#include "os/internal/posix.h"

#include <cerrno>
#include <system_error>

namespace varda::os::internal {
namespace {

Code code_of(int number) {
  switch (number) {
    case ENOENT:
    case ESRCH:
      return Code::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kForbidden;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case EMLINK:
    case ENOMEM:
      return Code::kExhausted;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOEXEC:
    case EINVAL:
      return Code::kInvalid;
    case EAGAIN:
    case EBUSY:
    case ETXTBSY:
      return Code::kUnavailable;
    case EXDEV:
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnsupported;
    default:
      return Code::kInternal;
  }
}

}  // namespace

Error errno_error(int number, std::string_view what) {
  return Error(code_of(number), std::string(what) + ": " + std::generic_category().message(number));
}

}  // namespace varda::os::internal
