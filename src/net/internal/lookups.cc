#include "net/internal/lookups.h"

#include <netdb.h>
#include <system_error>
#include <thread>
#include <utility>

namespace varda::net::internal {

std::shared_ptr<Lookups::Lookup> Lookups::join(const std::string& host, int port) {
  const std::string key = host + ' ' + std::to_string(port);
  Name& name = shared_->names[key];
  if (name.under_way >= kOneNameMax) return name.last;
  const auto lookup = name.last = std::make_shared<Lookup>();
  ++name.under_way;
  try {
    std::thread([shared = shared_, lookup, key, host, port] {
      Found found = shared->find(host, port);
      {
        std::lock_guard lock(shared->mutex);
        lookup->done = true;
        lookup->found = std::move(found);
        const auto known = shared->names.find(key);
        if (--known->second.under_way == 0) shared->names.erase(known);
      }
      shared->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // no threads left
    lookup->done = true;
    lookup->found.error = EAI_AGAIN;
    if (--name.under_way == 0) shared_->names.erase(key);
  }
  return lookup;
}

Result<Lookups::Found> Lookups::find(const Context& ctx, const std::string& host, int port) {
  std::unique_lock lock(shared_->mutex);
  const std::shared_ptr<Lookup> lookup = join(host, port);
  const auto is_done = [&] { return lookup->done; };
  if (ctx.deadline()) {
    shared_->changed.wait_until(lock, ctx.stop_token(), *ctx.deadline(), is_done);
  } else {
    shared_->changed.wait(lock, ctx.stop_token(), is_done);
  }
  if (lookup->done) return lookup->found;
  if (ctx.stopped()) return Error(Code::kCancelled, "stop requested");
  return Error(Code::kTimeout, "resolving " + host + " took too long");
}

}  // namespace varda::net::internal
