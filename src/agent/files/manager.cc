#include "agent/files/manager.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "codec/text.h"
#include "net/url.h"

namespace varda::agent::files {
namespace {

using api::EdgeFileReport;

constexpr std::size_t kMessageMax = 4096;  // as in the schema

artifact::DigestReader::Options reader_options(const Manager::Options& options) {
  return {.threads = 1,
          .files_max = api::EdgeFile::kMax,
          .pause = options.retry,
          .limits = options.limits,
          .file_roots = options.roots};
}

std::string file_url(const std::string& path) {
  std::string url = "file://";
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    url += net::percent_encode(path.substr(at, end - at));
    if (end < path.size()) url += '/';
    at = end + 1;
  }
  return url;
}

}  // namespace

Manager::Manager(Options options, os::FileSystem& fs, net::HttpClient& http)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      reader_(reader_options(options_), fs, http) {}

void Manager::apply(const core::WorkList& list) {
  const MutexLock lock(mutex_);
  std::vector<Entry> next;
  for (const api::EdgeFile& file : list.spec.files) {
    const auto known = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.file == file; });
    if (known != entries_.end()) {
      next.push_back(std::move(*known));
      continue;
    }
    Entry entry;
    entry.file = file;
    entry.report.key = file.key;
    entry.report.uid = file.uid;
    entry.report.path = file.path;
    entry.report.version = file.version;
    entry.report.state = EdgeFileReport::kReading;
    next.push_back(std::move(entry));
  }
  entries_ = std::move(next);
  list_ = list.id;
  changed_ = true;
  wakeup_.notify();
}

std::optional<SteadyTime> Manager::due() const {
  const MutexLock lock(mutex_);
  if (changed_) return SteadyTime::min();
  std::optional<SteadyTime> first;
  for (const Entry& entry : entries_)
    if (entry.report.state != EdgeFileReport::kRead)
      first = std::min(first.value_or(entry.next), entry.next);
  return first;
}

void Manager::step() {
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    changed_ = std::exchange(changed_, false);
    for (Entry& entry : entries_) {
      EdgeFileReport& report = entry.report;
      if (report.state == EdgeFileReport::kRead || entry.next > now) continue;
      using State = artifact::DigestReader::Answer::State;
      const auto answer = reader_.ask(file_url(entry.file.path));
      switch (answer.state) {
        case State::kReading:
          entry.next = now + options_.poll;
          break;
        case State::kFailed:
          entry.next = now + options_.retry;
          report.state = EdgeFileReport::kFailed;
          report.message = codec::clipped(answer.message, kMessageMax);
          break;
        case State::kRead:
          report.state = EdgeFileReport::kRead;
          report.message.clear();
          report.sha256 = answer.facts.digest.hex();
          report.bytes = static_cast<std::int64_t>(answer.facts.bytes);
          log::info(
              "digest of a file reported",
              {{"object", entry.file.key}, {"path", entry.file.path}, {"sha256", report.sha256}});
          break;
      }
    }
  }
  publish();
}

std::vector<runtime::Task> Manager::tasks() {
  return {{.name = "files",
           .due = [this] { return due(); },
           .step = [this](const Context&) { step(); },
           .wakeup = &wakeup_}};
}

core::ListId Manager::put_report(api::EdgeNodeStatus& status,
                                 const api::EdgeNodeStatus& /*live*/) const {
  const MutexLock lock(mutex_);
  for (const Entry& entry : entries_) status.files.push_back(entry.report);
  return list_;
}

}  // namespace varda::agent::files
