// Name lookups. The resolver cannot be interrupted and may take 30 s if no name server answers.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "net/internal/socket.h"

namespace varda::net::internal {

/// Thread-safe. Each lookup runs on a separate thread, which is left behind when its callers give
/// up. Each name has at most kOneNameMax lookups; further callers wait for the last one. So many
/// impatient callers leave few threads.
class Lookups {
 public:
  static constexpr unsigned kOneNameMax = 16;
  struct Found {
    int error = 0;  // the error of getaddrinfo
    std::vector<Address> addresses;
  };
  using Find = std::function<Found(const std::string& host, int port)>;

  /// `find` blocks. Its threads may outlive this object.
  explicit Lookups(Find find) : shared_(std::make_shared<Shared>(std::move(find))) {}

  /// kTimeout, kCancelled: the context.
  Result<Found> find(const Context& ctx, const std::string& host, int port);

 private:
  struct Lookup {
    bool done = false;
    Found found;
  };
  struct Name {
    unsigned under_way = 0;
    std::shared_ptr<Lookup> last;
  };
  struct Shared {
    explicit Shared(Find resolver) : find(std::move(resolver)) {}
    const Find find;
    std::mutex mutex;
    std::condition_variable_any changed;
    std::map<std::string, Name> names;
  };
  std::shared_ptr<Lookup> join(const std::string& host, int port);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace varda::net::internal
