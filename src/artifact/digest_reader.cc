#include "artifact/digest_reader.h"

#include <algorithm>
#include <utility>

#include "artifact/internal/source.h"
#include "base/log.h"

namespace varda::artifact {

DigestReader::DigestReader(Options options, os::FileSystem& fs, net::HttpClient& http)
    : options_(std::move(options)),
      clock_(options_.transport.clock != nullptr ? *options_.transport.clock : system_clock()),
      fs_(fs),
      http_(http) {
  for (int i = 0; i < options_.threads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { work(Context(stop)); });
}

DigestReader::~DigestReader() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

DigestReader::Answer DigestReader::ask(const std::string& url) {
  const MutexLock lock(mutex_);
  auto found = files_.find(url);
  const bool finished = found != files_.end() && (found->second.state == File::State::kFailed ||
                                                  found->second.state == File::State::kRead);
  // The object of an old answer is gone, and the file may have changed.
  if (finished && clock_.now() - found->second.finished >= options_.pause) {
    files_.erase(found);
    found = files_.end();
  }
  if (found == files_.end()) {
    if (make_room()) {
      files_.emplace(url, File());
      changed_.notify_one();
    }
    return {};
  }
  switch (found->second.state) {
    case File::State::kWaiting:
    case File::State::kReading:
      break;
    case File::State::kFailed:
      return {Answer::State::kFailed, {}, found->second.message};
    case File::State::kRead: {
      Answer answer{Answer::State::kRead, found->second.facts, ""};
      files_.erase(found);
      return answer;
    }
  }
  return {};
}

// Drops the file that finished first. The object that asked for it may be gone.
bool DigestReader::make_room() {
  if (files_.size() < options_.files_max) return true;
  auto first = files_.end();
  for (auto file = files_.begin(); file != files_.end(); ++file) {
    if (file->second.state == File::State::kWaiting || file->second.state == File::State::kReading)
      continue;
    if (first == files_.end() || file->second.finished < first->second.finished) first = file;
  }
  if (first == files_.end()) return false;
  files_.erase(first);
  return true;
}

void DigestReader::work(const Context& ctx) {
  while (!ctx.stopped()) {
    std::string url;
    {
      const MutexLock lock(mutex_);
      const auto waiting = std::find_if(files_.begin(), files_.end(), [](const auto& file) {
        return file.second.state == File::State::kWaiting;
      });
      if (waiting == files_.end()) {
        changed_.wait(mutex_, ctx.stop_token());
        continue;
      }
      waiting->second.state = File::State::kReading;
      url = waiting->first;
    }
    log::info("reading file to pin its digest", {{"url", shown_url(url)}});
    const Outcome<FileFacts> facts = read(ctx, url);
    const MutexLock lock(mutex_);
    File& file = files_.at(url);  // a file in this state stays
    file.finished = clock_.now();
    file.state = facts.ok() ? File::State::kRead : File::State::kFailed;
    if (facts.ok()) {
      file.facts = *facts;
    } else {
      file.message = facts.error().error.message();
    }
  }
}

Outcome<FileFacts> DigestReader::read(const Context& ctx, const std::string& url) const {
  auto source = open_source(ctx, fs_, http_,
                            {.request = {.url = url},
                             .url = url,
                             .spooled = false,
                             .file_roots = options_.file_roots,
                             .limits = options_.limits,
                             .transport = options_.transport});
  if (!source.ok()) return source.error();
  while (true) {
    Outcome<std::string> piece = (*source)->next();
    if (!piece.ok()) return piece.error();
    if (piece->empty()) break;
  }
  if ((*source)->looks_like_page())
    return Failure{
        Reason::kDownloadFailed,
        Error(Code::kUnavailable, shown_url(url) + ": an HTML page where a model should be")};
  if ((*source)->bytes() == 0)
    return Failure{Reason::kDownloadFailed,
                   Error(Code::kUnavailable, shown_url(url) + ": the file is empty")};
  return FileFacts{(*source)->digest(), (*source)->bytes()};
}

}  // namespace varda::artifact
