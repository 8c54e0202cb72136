// Lookups: who asks the resolver, which cannot be interrupted and may take half a minute where no name server answers.
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

/// Thread-safe. Each lookup has a thread of its own, which is left behind when its callers may not wait; of one name there are at
/// most kOneNameMax, whoever comes then waits with the last of them. So callers that give up soon, however many, leave few threads.
class Lookups {
 public:
  static constexpr unsigned kOneNameMax = 16;
  struct Found {
    int error = 0;  // of getaddrinfo
    std::vector<Address> addresses;
  };
  using Find = std::function<Found(const std::string& host, int port)>;

  /// `find` blocks. Its threads may outlive this.
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
    explicit Shared(Find given) : find(std::move(given)) {}
    const Find find;
    std::mutex mutex;
    std::condition_variable_any changed;
    std::map<std::string, Name> names;
  };
  std::shared_ptr<Lookup> join(const std::string& host, int port);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace varda::net::internal
