#include "participant/internal/presence.h"

#include <utility>

#include "participant/task.h"

namespace varda::participant {

Presence::Presence(const Context& ctx, Options options, Transfer transfer)
    : options_(std::move(options)),
      transfer_(std::move(transfer)),
      work_(ctx.with_stop(source_.get_token())),
      chained_(ctx.stop_token(), [this] { source_.request_stop(); }),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

void Presence::run(const std::stop_token& stop) {
  const Context ctx(stop);
  while (ctx.sleep_for(options_.every).ok()) {
    // A failure has no consequence: the next request follows.
    const auto answer = transfer_.call(ctx, "GET", options_.target, "", options_.wait);
    if (!answer.ok() || answer->status != 200) continue;
    const auto task = parse_task(answer->body);
    if (!task.ok()) continue;
    if (task->kind != Task::Kind::kEnd && options_.until != Options::Until::kNextTask) continue;
    over_ = true;
    source_.request_stop();
    return;
  }
}

}  // namespace varda::participant
