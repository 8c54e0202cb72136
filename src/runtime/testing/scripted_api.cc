#include "runtime/testing/scripted_api.h"

#include <utility>

namespace varda::runtime {

using codec::Json;

struct ScriptedApi::Pipe {
  std::mutex mutex;
  std::deque<std::string> lines;
  bool ended = false;
  std::function<void()> wake;

  void push(std::string line, bool end) {
    std::function<void()> call;
    {
      std::lock_guard lock(mutex);
      if (!line.empty()) lines.push_back(std::move(line));
      ended |= end;
      call = wake;
    }
    if (call) call();
  }
};

class ScriptedApi::Stream final : public net::BodyStream {
 public:
  explicit Stream(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  ~Stream() override {
    std::lock_guard lock(pipe_->mutex);
    pipe_->wake = nullptr;
  }
  std::optional<std::string> read() override {
    std::lock_guard lock(pipe_->mutex);
    if (pipe_->lines.empty()) return pipe_->ended ? std::nullopt : std::optional<std::string>("");
    std::string line = std::move(pipe_->lines.front());
    pipe_->lines.pop_front();
    return line;
  }
  void on_ready(std::function<void()> wake) override {
    std::lock_guard lock(pipe_->mutex);
    pipe_->wake = std::move(wake);
  }

 private:
  std::shared_ptr<Pipe> pipe_;
};

net::Handler ScriptedApi::handler() {
  return net::inline_handler([this](const net::Request& request) {
    const auto reply = [](const std::pair<int, Json>& answer) {
      net::Response response;
      response.status = answer.first;
      response.body = codec::write_json(answer.second);
      return response;
    };
    std::lock_guard lock(mutex_);
    requests_.push_back(request.method + " " + request.target);
    if (request.target.find("watch=true") == std::string::npos) {
      if (!answers_.empty()) {
        current_ = std::move(answers_.front());
        answers_.pop_front();
      }
      return reply(current_);
    }
    if (!refusals_.empty()) {
      const auto answer = refusals_.front();
      refusals_.pop_front();
      return reply(answer);
    }
    pipes_.push_back(std::make_shared<Pipe>());
    last_watch_ = request.target;
    opened_.notify_all();
    net::Response response;
    response.stream = std::make_unique<Stream>(pipes_.back());
    return response;
  });
}

void ScriptedApi::answer(int status, const Json& body) {
  std::lock_guard lock(mutex_);
  answers_.emplace_back(status, body);
}

void ScriptedApi::refuse_watch(int status, const Json& body) {
  std::lock_guard lock(mutex_);
  refusals_.emplace_back(status, body);
}

std::string ScriptedApi::wait_watches(std::size_t count) {
  std::unique_lock lock(mutex_);
  const bool came =
      opened_.wait_for(lock, std::chrono::seconds(60), [&] { return pipes_.size() >= count; });
  CHECK(came);
  return last_watch_;
}

void ScriptedApi::send(const Json& event) {
  std::shared_ptr<Pipe> pipe;
  {
    std::lock_guard lock(mutex_);
    CHECK(!pipes_.empty());
    pipe = pipes_.back();
  }
  pipe->push(codec::write_json(event) + "\n", false);
}

void ScriptedApi::end_watch() {
  std::shared_ptr<Pipe> pipe;
  {
    std::lock_guard lock(mutex_);
    CHECK(!pipes_.empty());
    pipe = pipes_.back();
  }
  pipe->push("", true);
}

std::vector<std::string> ScriptedApi::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

Json watch_event(const char* type, Json object) {
  return Json::object({{"type", type}, {"object", std::move(object)}});
}

Json pod_object(const char* name, int resource_version, const char* ns) {
  return Json::object(
      {{"apiVersion", "v1"},
       {"kind", "Pod"},
       {"metadata", Json::object({{"namespace", ns},
                                  {"name", name},
                                  {"uid", std::string("uid-") + name},
                                  {"resourceVersion", std::to_string(resource_version)}})}});
}

Json pod_list(int resource_version, std::vector<Json> items, const char* continue_token) {
  Json metadata = Json::object({{"resourceVersion", std::to_string(resource_version)}});
  if (*continue_token) metadata.set("continue", continue_token);
  return Json::object({{"kind", "PodList"},
                       {"apiVersion", "v1"},
                       {"metadata", std::move(metadata)},
                       {"items", Json(std::move(items))}});
}

}  // namespace varda::runtime
