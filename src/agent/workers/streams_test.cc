// Streams of workers over real sockets: without a gateway, through a gateway, and ports.
#include "agent/workers/streams.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>

#include "agent/workers/api.h"
#include "base/testing/eventually.h"
#include "net/client.h"
#include "net/server.h"
#include "os/testing/memory_file_system.h"

namespace varda::agent::workers {
namespace streams_test {

using namespace std::chrono_literals;

Context patience() { return Context().with_timeout(60s); }

/// Answers with the identity of the stream.
std::unique_ptr<net::Server> target() {
  net::Server::Options options;
  options.proxy = net::ProxyReception{.header = net::ProxyReception::Header::kOptional,
                                      .trust = {.trust_unsigned_loopback = true}};
  return *net::Server::create(
      options, net::inline_handler([](const net::Request& request) {
        const auto& identity = request.peer.stream_identity;
        return net::Response{
            .status = 200,
            .headers = {},
            .body = identity ? identity->node + " " + identity->worker + " " + identity->job_uid
                             : "nobody"};
      }));
}

/// Connects to one target, or refuses.
class FakeGateway final : public net::TunnelOpener {
 public:
  Result<net::TunnelAnswer> open(const Context& ctx, const net::TunnelRequest& request) override {
    {
      const MutexLock lock(mutex_);
      urls_.push_back(request.url);
    }
    if (silent.load()) {
      (void)ctx.sleep_for(1h);
      return Error(Code::kCancelled, "stopped");
    }
    net::TunnelAnswer answer;
    answer.status = status.load();
    if (answer.status != 101) {
      answer.body = R"({"kind":"Status","message":"not in the work list"})";
      return answer;
    }
    auto [near, far] = net::make_tunnel_pair();
    answer.tunnel = std::move(near);
    const MutexLock lock(mutex_);
    tunnels_.push_back(std::move(far));
    return answer;
  }
  std::vector<std::string> urls() {
    const MutexLock lock(mutex_);
    return urls_;
  }
  std::unique_ptr<net::Tunnel> last() {
    const MutexLock lock(mutex_);
    return std::move(tunnels_.back());
  }
  std::atomic<int> status{101};
  std::atomic<bool> silent{false};

 private:
  Mutex mutex_;
  std::vector<std::string> urls_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<net::Tunnel>> tunnels_ GUARDED_BY(mutex_);
};

api::EdgeWorker worker(const std::string& uid, std::vector<api::EdgeStream> streams,
                       const std::string& key = "default/train") {
  api::EdgeWorker out;
  out.key = key;
  out.uid = uid;
  out.streams = std::move(streams);
  return out;
}

class WorkerStreams : public ::testing::Test {
 protected:
  WorkerStreams() { start(); }
  void start(Streams::Options options = {}) {
    streams_.reset();
    options.node_name = "line7";
    streams_ = std::make_unique<Streams>(std::move(options), *state_store_);
  }
  api::EdgeStream to_target(const std::string& name = "aggregator") const {
    return {.name = name, .address = target_->address(), .identity = true, .unknown = {}};
  }
  Result<Streams::Start> open(const std::string& stream = "aggregator",
                              const std::string& uid = "u1") {
    std::promise<Result<Streams::Start>> opened;
    streams_->open("default/train", uid, stream,
                   [&](Result<Streams::Start> start) { opened.set_value(std::move(start)); });
    return opened.get_future().get();
  }
  /// The worker's end of a stream that runs.
  std::unique_ptr<net::Tunnel> stream() {
    auto start = open();
    EXPECT_TRUE(start.ok());
    auto [near, far] = net::make_tunnel_pair();
    if (start.ok()) (*start)(std::move(far));
    return std::move(near);
  }
  static std::string get(net::Connector connector) {
    net::ClientOptions options;
    options.connector = std::move(connector);
    const auto answer = net::make_client(options)->call(patience(), {.url = "http://aggregator/"});
    return answer.ok() ? answer->body : "!" + answer.error().message();
  }
  static std::string get(const std::string& address) {
    const auto answer = net::make_client({})->call(patience(), {.url = "http://" + address + "/"});
    return answer.ok() ? answer->body : "!" + std::string(to_string(answer.error().code()));
  }
  static bool ends(net::Tunnel& tunnel) {
    char byte = 0;
    const auto read = tunnel.read(patience(), {&byte, 1});
    return read.ok() ? *read == 0 : read.error().code() == Code::kUnavailable;
  }
  std::string port(const std::string& stream = "aggregator") {
    for (const api::EdgeStreamReport& one : streams_->report("default/train", "u1"))
      if (one.name == stream) return one.address;
    return "";
  }

  std::unique_ptr<net::Server> target_ = target();
  std::unique_ptr<core::StateStore> state_store_ = core::StateStore::in_memory();
  FakeGateway gateway_;
  std::unique_ptr<Streams> streams_;
};

TEST_F(WorkerStreams, WithoutAGatewayTheAgentWritesAnUnsignedIdentity) {
  streams_->set_workers({worker("u1", {to_target()})});
  EXPECT_EQ(get([&](const Context&) -> Result<std::unique_ptr<net::Tunnel>> { return stream(); }),
            "line7 default/train u1");
}

TEST_F(WorkerStreams, OnlyStreamsOfTheWorkerAndItsJobAreOpened) {
  streams_->set_workers({worker("u1", {to_target()})});
  EXPECT_EQ(open("other").error().code(), Code::kNotFound);
  EXPECT_EQ(open("aggregator", "u0").error().code(), Code::kNotFound);
  api::EdgeStream unknown = to_target();
  unknown.address.clear();
  streams_->set_workers({worker("u1", {unknown})});
  EXPECT_EQ(open().error().code(), Code::kUnavailable);
}

TEST_F(WorkerStreams, PortLeadsToTheTargetAndIsReported) {
  api::EdgeStream listening = to_target();
  listening.listen = true;
  EXPECT_EQ(port(), "");
  streams_->set_workers({worker("u1", {listening, to_target("silent")})});
  ASSERT_TRUE(port().starts_with("127.0.0.1:")) << port();
  EXPECT_EQ(port("silent"), "");
  EXPECT_EQ(get(port()), "line7 default/train u1");
  EXPECT_EQ(get(port()), "line7 default/train u1");
  EXPECT_TRUE(streams_->report("default/train", "another job").empty());
  const std::string before = port();
  streams_->set_workers({});
  EXPECT_EQ(get(before), "!unavailable") << "the port closes with the worker";
}

TEST_F(WorkerStreams, PortStaysOverARestart) {
  api::EdgeStream listening = to_target();
  listening.listen = true;
  const std::vector<api::EdgeWorker> list{worker("u1", {listening})};
  streams_->set_workers(list);
  const std::string before = port();
  start();
  streams_->set_workers(list);
  EXPECT_EQ(port(), before);
  state_store_ = core::StateStore::in_memory();
  start();
  streams_->set_workers(list);
  EXPECT_EQ(port(), before) << "even with an empty database";
}

TEST_F(WorkerStreams, TakenPortIsReplacedAndTheNewOneStays) {
  api::EdgeStream listening = to_target();
  listening.listen = true;
  const std::vector<api::EdgeWorker> list{worker("u1", {listening})};
  streams_->set_workers(list);
  const std::string before = port();
  start();
  net::Server::Options options;
  options.listen = before;
  auto taken = net::Server::create(options, net::inline_handler(nullptr));
  ASSERT_TRUE(taken.ok());
  streams_->set_workers(list);
  const std::string next = port();
  EXPECT_NE(next, "");
  EXPECT_NE(next, before);
  start();
  taken->reset();
  streams_->set_workers(list);
  EXPECT_EQ(port(), next);
}

TEST_F(WorkerStreams, UnusableHostIsReported) {
  start({.listen_host = "192.0.2.1"});
  api::EdgeStream listening = to_target();
  listening.listen = true;
  streams_->set_workers({worker("u1", {listening})});
  const auto report = streams_->report("default/train", "u1");
  ASSERT_EQ(report.size(), 1u);
  EXPECT_EQ(report[0].address, "");
  EXPECT_NE(report[0].message.find("192.0.2.1"), std::string::npos) << report[0].message;
}

TEST_F(WorkerStreams, RemovedStreamEnds) {
  streams_->set_workers({worker("u1", {to_target()})});
  const auto first = stream();
  streams_->set_workers({worker("u1", {to_target()}), worker("u2", {}, "default/other")});
  ASSERT_TRUE(first->write(patience(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n").ok());
  char bytes[512];
  EXPECT_GT(first->read(patience(), bytes).value_or(0), 0u) << "another worker changes nothing";
  streams_->set_workers({worker("u2", {to_target()})});
  EXPECT_TRUE(ends(*first)) << "another job of the name";
}

TEST_F(WorkerStreams, EachWorkerHasItsLimit) {
  start({.per_worker_max = 2});
  streams_->set_workers({worker("u1", {to_target()})});
  auto first = stream(), second = stream();
  EXPECT_EQ(open().error().code(), Code::kUnavailable);
  second.reset();
  EXPECT_TRUE(eventually([&] { return open().ok(); }));
}

TEST_F(WorkerStreams, GatewayGetsNamesAndNoIdentityFromTheAgent) {
  start({.gateway = &gateway_, .gateway_url = "https://cloud:10443"});
  streams_->set_workers({worker("u1", {to_target()})});
  const auto near = stream();
  EXPECT_EQ(gateway_.urls(),
            std::vector<std::string>{
                "https://cloud:10443/v1/streams?worker=default%2Ftrain&stream=aggregator"});
  const auto far = gateway_.last();
  ASSERT_TRUE(near->write(patience(), "first bytes").ok());
  char bytes[64];
  const auto read = far->read(patience(), bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::string(bytes, *read), "first bytes");
}

TEST_F(WorkerStreams, RefusalOfTheGatewayIsExplainedAndWorthARetry) {
  start({.gateway = &gateway_, .gateway_url = "https://cloud:10443"});
  streams_->set_workers({worker("u1", {to_target()})});
  gateway_.status = 403;
  const auto refused = open();
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_NE(refused.error().message().find("403: not in the work list"), std::string::npos);
  gateway_.status = 101;
  EXPECT_TRUE(open().ok());
}

TEST_F(WorkerStreams, StopDoesNotWaitForASilentGateway) {
  start({.gateway = &gateway_, .gateway_url = "https://cloud:10443"});
  streams_->set_workers({worker("u1", {to_target()})});
  gateway_.silent = true;
  std::atomic<bool> answered{false};
  streams_->open("default/train", "u1", "aggregator", [&](Result<Streams::Start> start) {
    EXPECT_FALSE(start.ok());
    answered = true;
  });
  ASSERT_TRUE(eventually([&] { return !gateway_.urls().empty(); }));
  streams_->stop();
  streams_.reset();
  EXPECT_TRUE(answered.load());
}

TEST_F(WorkerStreams, WorkerAsksAtTheApiWithItsToken) {
  os::testing::MemoryFileSystem fs;
  ASSERT_TRUE(fs.make_directories("/data", 0700).ok());
  Manager manager({.directory = "/data/workers", .streams = streams_.get()}, fs, *state_store_,
                  system_rng());
  api::EdgeNode node;
  api::EdgeStream listening = to_target();
  listening.listen = true;
  node.spec.workers = {worker("u1", {listening})};
  manager.apply(core::WorkList{{"n1", 1}, node.spec});
  manager.load();
  Api api({.node_name = "line7", .streams = streams_.get()}, manager);
  const auto server = *net::Server::create({}, api.handler());
  server->drain();
  const std::string token = os::read_file(fs, "/data/workers/default/train/token").value();
  const auto opener = net::make_tunnel_opener({});
  const auto asked = [&](const std::string& stream, const std::string& with) {
    return net::TunnelRequest{.url = "http://" + server->address() + "/v1/streams/" + stream,
                              .headers = {{"Authorization", "Bearer " + with}}};
  };
  EXPECT_EQ(opener->open(patience(), asked("aggregator", token + "x"))->status, 401);
  EXPECT_EQ(opener->open(patience(), asked("other", token))->status, 404);
  const auto plain = net::make_client({})->call(
      patience(),
      {.url = asked("aggregator", token).url, .headers = {{"Authorization", "Bearer " + token}}});
  EXPECT_EQ(plain->status, 426);
  EXPECT_EQ(
      get([&](const Context& ctx) { return opener->connect(ctx, asked("aggregator", token)); }),
      "line7 default/train u1");
  // The report has the port.
  for (const runtime::Task& task : manager.tasks()) task.step(Context::background());
  api::EdgeNodeStatus status;
  (void)manager.put_report(status, {});
  ASSERT_EQ(status.workers.size(), 1u);
  ASSERT_NE(status.workers[0].find_stream("aggregator"), nullptr);
  EXPECT_EQ(status.workers[0].find_stream("aggregator")->address, port());
  manager.finish();
}

}  // namespace streams_test
}  // namespace varda::agent::workers
