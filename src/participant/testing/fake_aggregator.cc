#include "participant/testing/fake_aggregator.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "codec/digest.h"

namespace varda::participant {
namespace {

using codec::Json;

net::Response with(int status, const Json& body = Json::object()) {
  net::Response out;
  out.status = status;
  out.headers.add("Content-Type", "application/json");
  out.body = codec::write_json(body);
  return out;
}

net::Response with_offset(int status, std::size_t offset) {
  net::Response out = with(status);
  out.headers.add("Upload-Offset", std::to_string(offset));
  return out;
}

std::string query_value(std::string_view query, const std::string& name) {
  for (const std::string_view part : split(query, '&'))
    if (part.starts_with(name + "=")) return std::string(part.substr(name.size() + 1));
  return "";
}

/// Ends with an error after some bytes.
class CutReader final : public net::BodyReader {
 public:
  CutReader(std::unique_ptr<net::BodyReader> body, std::size_t bytes)
      : body_(std::move(body)), left_(bytes) {}
  Result<std::optional<std::string>> read() override {
    if (left_ == 0) return Error(Code::kUnavailable, "connection reset");
    TRY(auto piece, body_->read());
    if (!piece) return piece;
    piece->resize(std::min(piece->size(), left_));
    left_ -= piece->size();
    return piece;
  }

 private:
  std::unique_ptr<net::BodyReader> body_;
  std::size_t left_;
};

class FaultyClient final : public net::HttpClient {
 public:
  FaultyClient(FakeAggregator& aggregator,
               std::function<Fault(std::size_t, const net::ClientRequest&)> fault)
      : aggregator_(aggregator),
        inner_(net::loopback(aggregator.handler())),
        fault_(std::move(fault)) {}

  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
    const Error reset(Code::kUnavailable, "connection reset");
    const Fault fault = fault_(number_++, request);
    // The URL of a loopback is the target alone.
    const std::size_t path = request.url.find('/', request.url.find("://") + 3);
    request.url = request.url.substr(path);
    if (fault.kind == Fault::Kind::kLostRequest) return reset;
    if (fault.kind == Fault::Kind::kCut && request.method == "PUT") {
      aggregator_.receive_cut(request, std::min(fault.bytes, request.body.size()));
      return reset;
    }
    TRY(auto response, inner_->send(ctx, std::move(request)));
    if (fault.kind == Fault::Kind::kLostAnswer) return reset;
    if (fault.kind == Fault::Kind::kCut)
      response.body = std::make_unique<CutReader>(std::move(response.body), fault.bytes);
    return response;
  }

 private:
  FakeAggregator& aggregator_;
  const std::unique_ptr<net::HttpClient> inner_;
  const std::function<Fault(std::size_t, const net::ClientRequest&)> fault_;
  std::atomic<std::size_t> number_ = 0;  // threads of one client send requests
};

struct Range {
  std::size_t first = 0, total = 0;
};
std::optional<Range> range_of(std::string_view content_range, std::size_t length) {
  unsigned long first = 0, last = 0, total = 0;
  if (std::sscanf(std::string(content_range).c_str(), "bytes %lu-%lu/%lu", &first, &last, &total) !=
          3 ||
      last + 1 - first != length)
    return std::nullopt;
  return Range{first, total};
}

}  // namespace

Json FakeAggregator::add_file(const std::string& bytes) {
  const MutexLock lock(mutex_);
  const std::string digest = codec::Sha256::of(bytes).hex();
  files_[digest] = bytes;
  return Json::object({{"sha256", digest}, {"bytes", std::uint64_t{bytes.size()}}});
}

void FakeAggregator::add_task(Json task) {
  const MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
}

void FakeAggregator::refuse(const std::string& start, int status, std::string message) {
  const MutexLock lock(mutex_);
  refusals_.push_back({start, {status, std::move(message)}});
}
void FakeAggregator::stop_refusing() {
  const MutexLock lock(mutex_);
  refusals_.clear();
}
void FakeAggregator::corrupt(int files) {
  const MutexLock lock(mutex_);
  corrupt_ = files;
}
void FakeAggregator::forget_uploads() {
  const MutexLock lock(mutex_);
  std::erase_if(uploads_, [](const auto& one) { return !one.second.accepted; });
}

std::vector<std::string> FakeAggregator::requests() const {
  const MutexLock lock(mutex_);
  return requests_;
}
std::map<std::string, std::string> FakeAggregator::updates() const {
  const MutexLock lock(mutex_);
  return accepted_;
}
std::map<std::string, Json> FakeAggregator::evaluations() const {
  const MutexLock lock(mutex_);
  return evaluations_;
}
int FakeAggregator::accepted_times(const std::string& task) const {
  const MutexLock lock(mutex_);
  const auto found = times_.find(task);
  return found == times_.end() ? 0 : found->second;
}

net::Handler FakeAggregator::handler() {
  return net::inline_handler([this](const net::Request& request) { return answer(request); });
}

net::Response FakeAggregator::answer(const net::Request& request) {
  const MutexLock lock(mutex_);
  const std::string what = request.method + " " + request.target;
  requests_.push_back(what);
  for (const auto& [start, refusal] : refusals_)
    if (what.starts_with(start))
      return with(refusal.first, Json::object({{"message", refusal.second}}));
  const std::string path(request.path());
  if (path == "/v1/task") return task_for(query_value(request.query(), "after"));
  constexpr std::string_view kModels = "/v1/models/sha256:", kUpdates = "/v1/updates/",
                             kEvaluations = "/v1/evaluations/";
  if (path.starts_with(kModels)) return file(request, path.substr(kModels.size()));
  if (path.starts_with(kEvaluations)) {
    const std::string task = path.substr(kEvaluations.size());
    auto body = codec::parse_json(request.body);
    if (!body.ok()) return with(400);
    evaluations_[task] = std::move(*body);
    answered_[task] = true;
    return with(200);
  }
  if (!path.starts_with(kUpdates)) return with(404);
  const std::string rest = path.substr(kUpdates.size());
  const std::size_t slash = rest.find('/');
  if (slash == std::string::npos) return with(404);
  return update(request, rest.substr(0, slash), rest.substr(slash + 1 + std::strlen("sha256:")));
}

net::Response FakeAggregator::task_for(const std::string& after) {
  // Tasks up to the client's last one are over, also those that the client skipped.
  const auto last = std::ranges::find_if(
      tasks_, [&](const Json& task) { return task["id"].as_string() == after; });
  for (auto task = last == tasks_.end() ? tasks_.begin() : last + 1; task != tasks_.end(); ++task)
    if (!answered_[(*task)["id"].as_string()]) return with(200, *task);
  return with(200, Json::object({{"id", "end"}, {"kind", "end"}}));
}

net::Response FakeAggregator::file(const net::Request& request, const std::string& digest) {
  const auto found = files_.find(digest);
  if (found == files_.end()) return with(404);
  std::string bytes = found->second;
  if (corrupt_ > 0) {
    --corrupt_;
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
  }
  net::Response out;
  out.body = bytes;
  if (const auto range = request.headers.find("Range")) {
    std::size_t first = 0;
    if (std::sscanf(std::string(*range).c_str(), "bytes=%zu-", &first) != 1) return with(400);
    if (first >= bytes.size()) return with(416);
    out.status = 206;
    out.headers.add("Content-Range", "bytes " + std::to_string(first) + "-" +
                                         std::to_string(bytes.size() - 1) + "/" +
                                         std::to_string(bytes.size()));
    out.body = bytes.substr(first);
  }
  return out;
}

void FakeAggregator::receive_cut(const net::ClientRequest& request, std::size_t bytes) {
  const MutexLock lock(mutex_);
  constexpr std::string_view kUpdates = "/v1/updates/";
  requests_.push_back("cut " + request.method + " " + request.url);
  if (!request.url.starts_with(kUpdates)) return;
  Upload& upload = uploads_[request.url.substr(kUpdates.size())];
  std::size_t first = 0;
  if (const auto text = request.headers.find("Content-Range"))
    first = range_of(*text, request.body.size()).value_or(Range{}).first;
  if (upload.accepted || first > upload.bytes.size()) return;
  upload.bytes.resize(first);
  upload.bytes += request.body.substr(0, bytes);
}

net::Response FakeAggregator::update(const net::Request& request, const std::string& task,
                                     const std::string& digest) {
  Upload& upload = uploads_[task + "/sha256:" + digest];
  if (request.method == "HEAD")
    return upload.accepted ? with(200) : with_offset(404, upload.bytes.size());
  if (request.method != "PUT") return with(405);
  if (upload.accepted) return with(200);
  Range range{0, request.body.size()};
  if (const auto text = request.headers.find("Content-Range")) {
    const auto read = range_of(*text, request.body.size());
    if (!read) return with(400);
    range = *read;
  }
  if (range.first > upload.bytes.size()) return with_offset(409, upload.bytes.size());
  upload.bytes.resize(range.first);
  upload.bytes += request.body;
  if (upload.bytes.size() < range.total) return with_offset(202, upload.bytes.size());
  if (codec::Sha256::of(upload.bytes).hex() != digest) {
    upload.bytes.clear();
    return with(422, Json::object({{"message", "digest"}}));
  }
  upload.accepted = true;
  accepted_[task] = upload.bytes;
  ++times_[task];
  answered_[task] = true;
  return with(201);
}

std::unique_ptr<net::HttpClient> faulty_client(
    FakeAggregator& aggregator,
    std::function<Fault(std::size_t number, const net::ClientRequest& request)> fault) {
  return std::make_unique<FaultyClient>(aggregator, std::move(fault));
}

}  // namespace varda::participant
