// The worker API of an agent on a Unix socket, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "net/server.h"
#include "os/testing/test_directory.h"

namespace varda::worker {

/// Follows docs/reference/worker-api.yaml where the trainer depends on it. Thread-safe.
class FakeAgent {
 public:
  FakeAgent() { directory_.write("token", "secret"); }

  std::string socket() const { return directory_ / "worker.sock"; }
  std::string token_file() const { return directory_ / "token"; }

  void start() {
    auto server = net::Server::create(
        {.listen = "unix:" + socket()},
        net::inline_handler([this](const net::Request& request) { return answer(request); }));
    CHECK(server.ok());
    server_ = std::move(*server);
  }
  void stop() { server_.reset(); }

  /// The next requests are carried out, but answered 500.
  void lose_answers(int count) {
    const MutexLock lock(mutex_);
    lose_ = count;
  }
  /// Answers with the status if method and path of a request begin with `request`.
  void refuse(const std::string& request, int status) {
    const MutexLock lock(mutex_);
    refusals_[request] = status;
  }
  /// The assignment that GET /v1/assignment answers.
  void assign(codec::Json assignment) {
    const MutexLock lock(mutex_);
    assignment_ = std::move(assignment);
  }
  void change_token(const std::string& token) {
    directory_.write("token", token);
    const MutexLock lock(mutex_);
    token_ = token;
  }
  void accept_file(const std::string& name, const std::string& bytes) {
    const MutexLock lock(mutex_);
    files_[name] = {bytes, true};
  }

  std::vector<std::string> requests() const {
    const MutexLock lock(mutex_);
    return requests_;
  }
  /// The last body of POST or PUT to the path; null: none.
  codec::Json body(const std::string& path) const {
    const MutexLock lock(mutex_);
    const auto found = bodies_.find(path);
    return found == bodies_.end() ? codec::Json() : found->second;
  }
  /// The bytes of an accepted file; "<none>" before.
  std::string file(const std::string& name) const {
    const MutexLock lock(mutex_);
    const auto found = files_.find(name);
    return found == files_.end() || !found->second.complete ? "<none>" : found->second.bytes;
  }

 private:
  struct File {
    std::string bytes;
    bool complete = false;
  };

  static net::Response with(int status, codec::Json body = codec::Json::object()) {
    net::Response out;
    out.status = status;
    out.body = codec::write_json(body);
    return out;
  }
  static net::Response with_offset(int status, std::size_t offset) {
    net::Response out = with(status);
    out.headers.add("Upload-Offset", std::to_string(offset));
    return out;
  }

  net::Response answer(const net::Request& request) {
    const MutexLock lock(mutex_);
    const std::string what = request.method + " " + std::string(request.path());
    requests_.push_back(what);
    for (const auto& [start, status] : refusals_)
      if (what.starts_with(start))
        return with(status, codec::Json::object({{"message", "not accepted"}}));
    if (request.headers.find("Authorization") != "Bearer " + token_) return with(401);
    net::Response out = carry_out(request);
    if (lose_ > 0) {
      --lose_;
      return with(500);
    }
    return out;
  }

  net::Response carry_out(const net::Request& request) REQUIRES(mutex_) {
    const std::string path(request.path());
    if (path.starts_with("/v1/streams/")) return with(404);  // the node has no streams
    constexpr std::string_view kArtifacts = "/v1/artifacts/";
    if (path.starts_with(kArtifacts)) return take(request, files_[path.substr(kArtifacts.size())]);
    if (path == "/v1/assignment")
      return with(200, codec::Json::object({{"revision", "1"}, {"assignment", assignment_}}));
    auto body = codec::parse_json(request.body);
    if (!body.ok()) return with(400);
    bodies_[path] = std::move(*body);
    return with(path == "/v1/progress" ? 202 : 200);
  }

  static net::Response take(const net::Request& request, File& file) {
    if (request.method == "HEAD")
      return file.complete ? with(200) : with_offset(404, file.bytes.size());
    std::size_t first = 0, total = request.body.size();
    if (const auto range = request.headers.find("Content-Range")) {
      unsigned long from = 0, to = 0, all = 0;
      if (std::sscanf(std::string(*range).c_str(), "bytes %lu-%lu/%lu", &from, &to, &all) != 3 ||
          to + 1 - from != request.body.size())
        return with(400);
      first = from;
      total = all;
    }
    if (!file.complete) {
      if (first > file.bytes.size()) return with_offset(409, file.bytes.size());
      file.bytes.resize(first);
      file.bytes += request.body;
      if (file.bytes.size() < total) return with_offset(202, file.bytes.size());
      file.complete = true;
    } else if (total != file.bytes.size()) {
      return with(409, codec::Json::object({{"message", "accepted already, with other bytes"}}));
    }
    return with(201, codec::Json::object({{"sha256", codec::Sha256::of(file.bytes).hex()}}));
  }

  const os::testing::TestDirectory directory_;
  mutable Mutex mutex_;
  std::string token_ GUARDED_BY(mutex_) = "secret";
  int lose_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> refusals_ GUARDED_BY(mutex_);
  std::vector<std::string> requests_ GUARDED_BY(mutex_);
  std::map<std::string, codec::Json> bodies_ GUARDED_BY(mutex_);
  std::map<std::string, File> files_ GUARDED_BY(mutex_);
  codec::Json assignment_ GUARDED_BY(mutex_);
  std::unique_ptr<net::Server> server_;
};

}  // namespace varda::worker
