// Access: the clients that may use the inference port.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "net/http.h"
#include "os/file_system.h"

namespace varda::serve {

/// Reads a file, also through links: a kubelet mounts the files of Secrets as links.
Result<std::string> read_through_links(os::FileSystem& fs, os::Path path);

/// Reads the whole file, through links. Thread-safe.
using ReadFile = std::function<Result<std::string>(const os::Path& path)>;
/// `fs` outlives the function.
ReadFile read_from(os::FileSystem& fs);

/// Splits a file's text into tokens, one a line. Trailing blanks and empty lines are ignored.
std::vector<std::string> token_lines(std::string_view text);

/// kInvalid: no certificate, no key, or a key that does not belong to the certificate. The message
/// contains no part of the key.
Status check_pair(const std::string& certificate_pem, const std::string& key_pem);

/// Tokens in a file, one a line. knows() reads the file again after a second, so tokens can be
/// replaced without a restart. The last tokens stay valid while the file is empty or unreadable.
/// Thread-safe.
class TokenFile {
 public:
  /// kInvalid: the file has no token. `clock` outlives it.
  static Result<std::unique_ptr<TokenFile>> open(os::Path path, ReadFile read_file,
                                                 const Clock& clock);
  /// Compares with every token in constant time.
  bool knows(std::string_view token);

 private:
  TokenFile(os::Path path, ReadFile read_file, const Clock& clock)
      : path_(std::move(path)), read_file_(std::move(read_file)), clock_(clock) {}
  Status read() REQUIRES(mutex_);

  const os::Path path_;
  const ReadFile read_file_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<std::string> tokens_ GUARDED_BY(mutex_);
  SteadyTime read_at_ GUARDED_BY(mutex_);
};

struct Access {
  TokenFile* tokens = nullptr;            // null: no token is needed; outlives the handler
  bool needs_client_certificate = false;  // verified by TLS
};

/// Answers 401 to requests without the credentials that `access` requires. Probes and agents need
/// no credentials for /healthz, /readyz, /v2/health/*, /v2/models/M/ready, /v2/models/M/joint and
/// /v2/repository/index.
net::Handler guarded(net::Handler handler, Access access);

}  // namespace varda::serve
