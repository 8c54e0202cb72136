#include "agent/datasets/counter.h"

#include "base/log.h"

namespace varda::agent::datasets {
namespace {

using Work = Schedule::Work;
using CountResult = Schedule::Done::Result;

std::string state_for(const CountTask& task, const os::FileFacts& facts,
                      const std::function<std::string()>& load_state) {
  if (task.portion) return task.state;
  if (task.work == Work::kRecount) return "";
  // Replaced bytes invalidate the resume state, even if the file looks like it only grew. The state
  // of a folder has the facts of its files.
  const bool folder = facts.kind == os::FileKind::kDirectory;
  if (!folder && task.facts && rewritten(*task.facts, facts)) return "";
  return task.state_on_disk ? load_state() : task.state;
}

}  // namespace

bool rewritten(const os::FileFacts& before, const os::FileFacts& now) {
  return before.device == now.device && before.inode == now.inode &&
         before.size_bytes == now.size_bytes && before.modified_ns != now.modified_ns;
}

struct Counter::Plan {
  const dataset::Format* format = nullptr;
  dataset::FormatOptions options;
};

void Counter::fail(const CountTask& task, const Error& error, CountOutcome& out) const {
  out.failure = failure_of(error, task.spec.path, options_.roots);
  if (out.failure.reason == "ReadFailed") out.done.result = CountResult::kUnreadable;
}

CountOutcome Counter::count(const Context& ctx, const CountTask& task,
                            const std::function<std::string()>& load_state, Progress progress) {
  if (auto begun = folders_.extract(task.id))
    return resume(ctx, task, std::move(begun.mapped()), progress);
  CountOutcome out;
  out.done.watched = true;  // a refused path needs no polling: only a new work list helps
  out.failure = refusal_of(task.spec.path, options_.roots);
  if (!out.failure.reason.empty()) return out;
  const auto format = dataset::find_format(task.spec.format);
  const auto header = dataset::parse_header(task.spec.header.empty() ? "auto" : task.spec.header);
  if (!format.ok() || !header.ok()) {
    fail(task, format.ok() ? header.error() : format.error(), out);
    return out;
  }
  return look(ctx, task, {.format = *format, .options = {.header = *header}}, load_state, progress);
}

CountOutcome Counter::look(const Context& ctx, const CountTask& task, const Plan& plan,
                           const std::function<std::string()>& load_state,
                           const Progress& progress) {
  const os::Path path = task.spec.path;
  CountOutcome out;
  out.done.watched = true;
  auto tree = tree_();
  if (!tree.ok()) {
    fail(task, tree.error(), out);
    return out;
  }
  auto facts = (*tree)->facts(path);
  const bool exists = facts.ok(), folder = exists && facts->kind == os::FileKind::kDirectory;
  const bool walked = folder && plan.format->counts_folders();
  // Watch first, count second: changes during the count are noticed.
  const auto scope = walked              ? os::FileWatch::Scope::kFolder
                     : exists && !folder ? os::FileWatch::Scope::kFile
                                         : os::FileWatch::Scope::kNames;
  const Status watched = watch_.watch(task.id, path, scope);
  out.done.watched = watched.ok();
  out.done.folder = walked;
  if (!watched.ok())
    log::debug("dataset not watched, polling instead",
               {{"path", path.string()}, {"because", watched.error()}});
  if (!exists) {
    fail(task, facts.error(), out);
    return out;
  }
  if (walked) {
    auto count =
        dataset::FolderCount::begin(**tree, {.path = path,
                                             .format = plan.format,
                                             .options = plan.options,
                                             .state = state_for(task, *facts, load_state)});
    if (count.ok())
      return resume(ctx, task,
                    {.tree = std::move(*tree), .count = std::move(*count), .watched = watched.ok()},
                    progress);
    fail(task, count.error(), out);
    return out;
  }
  if (task.work == Work::kLook && !task.failed && task.facts && *task.facts == *facts) {
    out.done.result = CountResult::kNothing;
    return out;
  }
  auto counted = dataset::count(ctx, **tree,
                                {.path = path,
                                 .format = plan.format,
                                 .options = plan.options,
                                 .state = state_for(task, *facts, load_state),
                                 .bytes_max = options_.portion_bytes,
                                 .progress = progress});
  if (!counted.ok()) {
    out.dropped = ctx.done();
    fail(task, counted.error(), out);
    return out;
  }
  out.done.result = counted->complete ? CountResult::kCounted : CountResult::kPortion;
  facts = (*tree)->facts(path);
  out.changed_meanwhile = !facts.ok() || !(*facts == counted->facts);
  out.counted = std::move(*counted);
  return out;
}

CountOutcome Counter::resume(const Context& ctx, const CountTask& task, Folder folder,
                             const Progress& progress) {
  CountOutcome out;
  out.done.watched = folder.watched;
  out.done.folder = true;
  auto counted = folder.count->resume(ctx, options_.portion_steps);
  if (!counted.ok()) {
    out.dropped = ctx.done();
    fail(task, counted.error(), out);
  } else if (!*counted) {
    out.done.result = CountResult::kPortion;
    progress(folder.count->progress());
    folders_.insert_or_assign(task.id, std::move(folder));
  } else {
    const auto facts = folder.tree->facts(task.spec.path);
    out.changed_meanwhile = !facts.ok() || !(*facts == (*counted)->facts);
    out.counted = std::move(**counted);
  }
  return out;
}

}  // namespace varda::agent::datasets
