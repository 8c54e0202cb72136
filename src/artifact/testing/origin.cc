#include "artifact/testing/origin.h"

#include <charconv>
#include <condition_variable>
#include <mutex>

namespace varda::artifact::testing {

class OriginBody final : public net::BodyReader {
 public:
  OriginBody(Context ctx, Origin& origin, Origin::File file, std::size_t at)
      : ctx_(std::move(ctx)), origin_(origin), file_(std::move(file)), at_(at), start_(at) {}

  Result<std::optional<std::string>> read() override {
    TRY_VOID(ctx_.check());
    if (file_.no_answer) {
      std::mutex mutex;
      std::condition_variable_any never;
      std::unique_lock lock(mutex);
      never.wait(lock, ctx_.stop_token(), [] { return false; });
      return Error(Code::kCancelled, "stop requested");
    }
    if (at_ >= file_.bytes.size()) return std::optional<std::string>();
    std::size_t count = std::min(file_.piece, file_.bytes.size() - at_);
    if (file_.break_after != 0) {
      if (at_ - start_ >= file_.break_after)
        return Error(Code::kUnavailable, "connection reset by peer");
      count = std::min(count, file_.break_after - (at_ - start_));
    }
    std::string bytes = file_.bytes.substr(at_, count);
    at_ += count;
    const MutexLock lock(origin_.mutex_);
    origin_.served_ += count;
    return std::optional<std::string>(std::move(bytes));
  }

 private:
  Context ctx_;
  Origin& origin_;
  Origin::File file_;
  std::size_t at_;
  std::size_t start_;
};

void Origin::put(std::string url, File file) {
  const MutexLock lock(mutex_);
  files_[std::move(url)] = std::move(file);
}

void Origin::remove(const std::string& url) {
  const MutexLock lock(mutex_);
  files_.erase(url);
}

void Origin::on_request(std::function<void()> hook) {
  const MutexLock lock(mutex_);
  hook_ = std::move(hook);
}

std::vector<Origin::Seen> Origin::seen() const {
  const MutexLock lock(mutex_);
  return seen_;
}

std::uint64_t Origin::bytes_served() const {
  const MutexLock lock(mutex_);
  return served_;
}

Result<net::ClientResponse> Origin::send(const Context& ctx, net::ClientRequest request) {
  TRY_VOID(ctx.check());
  std::function<void()> hook;
  std::optional<File> file;
  const std::string range(request.headers.find("Range").value_or(""));
  const std::string if_range(request.headers.find("If-Range").value_or(""));
  {
    const MutexLock lock(mutex_);
    seen_.push_back({request.url, range, if_range,
                     std::string(request.headers.find("Authorization").value_or(""))});
    hook = hook_;
    if (const auto found = files_.find(request.url); found != files_.end()) file = found->second;
  }
  if (hook) hook();
  if (!file) return Error(Code::kUnavailable, "connection refused");
  net::ClientResponse response;
  response.status = file->status;
  response.headers.add("Content-Type", file->content_type);
  for (const auto& [name, value] : file->headers.all()) response.headers.add(name, value);
  if (!file->etag.empty()) response.headers.add("ETag", file->etag);
  const std::size_t total = file->bytes.size();
  std::size_t at = 0;
  if (file->status == 200 && file->ranges && range.starts_with("bytes=") &&
      (if_range.empty() || if_range == file->etag)) {
    const char* const range_end = range.data() + range.size();
    const char* const dash = std::from_chars(range.data() + 6, range_end, at).ptr;
    std::size_t last = total;
    if (dash != range_end) std::from_chars(dash + 1, range_end, last);
    at += file->range_shift;
    if (at >= total) {
      response.status = 416;
      response.headers.add("Content-Range", "bytes */" + std::to_string(total));
      at = total;
    } else {
      response.status = 206;
      if (file->range_max != 0) file->bytes.resize(std::min(total, at + file->range_max));
      if (file->range_ends) file->bytes.resize(std::min(file->bytes.size(), last + 1));
      response.headers.add("Content-Range", "bytes " + std::to_string(at) + "-" +
                                                std::to_string(file->bytes.size() - 1) + "/" +
                                                std::to_string(total));
    }
  }
  if (file->length)
    response.headers.add("Content-Length",
                         std::to_string(file->bytes.size() - std::min(at, file->bytes.size())));
  response.body = std::make_unique<OriginBody>(ctx, *this, std::move(*file), at);
  return response;
}

}  // namespace varda::artifact::testing
