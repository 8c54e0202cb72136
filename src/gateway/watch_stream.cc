#include "gateway/watch_stream.h"

#include "meta/status.h"

namespace varda::gateway {

WatchStream::~WatchStream() {
  if (!wake_) return;
  options_.view->remove(options_.cursor.node, *this);
  options_.timers->remove(*this);
}

void WatchStream::on_ready(std::function<void()> wake) {
  wake_ = std::move(wake);
  options_.view->add(options_.cursor.node, *this);
  options_.timers->add(options_.end, *this);
}

std::optional<std::string> WatchStream::read() {
  if (ended_ || options_.stopping->load() || options_.admission->is_revoked(options_.cursor.node))
    return std::nullopt;
  auto changes = options_.view->read(options_.cursor);
  if (!changes.ok()) {
    ended_ = true;
    return "{\"type\":\"ERROR\",\"object\":" +
           codec::write_json(meta::ApiStatus::from_error(changes.error()).to_json()) + "}\n";
  }
  if (!changes->empty()) return std::move(changes).value();
  if (std::chrono::steady_clock::now() < options_.end) return std::string();
  ended_ = true;
  // The final bookmark names the last complete version. So the next watch of a quiet node does not
  // begin too far back.
  if (options_.bookmarks) return bookmark_line(*options_.resource, options_.cursor.version);
  return std::nullopt;
}

}  // namespace varda::gateway
