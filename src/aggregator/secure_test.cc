// Secure aggregation with real clients: the server and the clients of one job in this process.
#include <atomic>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aggregator/service.h"
#include "aggregator/testing/sample_job.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "codec/ed25519.h"
#include "federated/masked_update.h"
#include "net/client.h"
#include "net/server.h"
#include "os/testing/test_directory.h"
#include "participant/client.h"
#include "privacy/secure_sum.h"

namespace varda::aggregator {
namespace {
namespace secure_test {

using codec::Json;
using federated::Verdict;
using participant::Assignment;
using participant::TrainedUpdate;
using Answer = net::HttpClient::Answer;
using std::chrono::milliseconds;
using Phase = federated::RoundMachine::Phase;

constexpr std::uint64_t kFirstSamples = 10;

/// The changes and the samples of a client: a function of its name and the round.
std::vector<float> delta_of(const std::string& client, std::int64_t round, std::size_t size) {
  const auto rng = seeded_rng(static_cast<std::uint64_t>(round) * 1000 +
                              static_cast<std::uint64_t>(client.back()));
  std::vector<float> out(size);
  for (float& value : out) value = static_cast<float>(rng->unit()) - 0.5f;
  return out;
}
std::uint64_t samples_of(const std::string& client) {
  return kFirstSamples + 7 * static_cast<std::uint64_t>(client.back() - '0');
}

class Worker final : public participant::Worker {
 public:
  explicit Worker(std::string client) : client_(std::move(client)) {}
  /// Called before the update of a round is ready.
  std::function<void(const participant::Task&)> on_train;

  Result<TrainedUpdate> train(const Context& ctx, const Assignment& assignment) override {
    if (on_train) on_train(assignment.task);
    TRY_VOID(ctx.check());
    return TrainedUpdate{
        .delta = delta_of(client_, assignment.task.round, assignment.model.layout().size()),
        .samples = samples_of(client_),
        .steps = 1,
        .metrics = Json::object({{"loss", 0.5}})};
  }
  Result<participant::Evaluated> evaluate(const Context&, const Assignment&) override {
    return participant::Evaluated{1, Json::object({{"accuracy", 0.5}})};
  }

 private:
  const std::string client_;
};

class Anywhere final : public participant::Machine {
 public:
  participant::MachineState look() override { return {}; }
};

/// A client that can be killed: its requests fail from then on, and its thread ends.
class LiveClient {
 public:
  LiveClient(const std::string& name, const std::string& address, os::Path directory)
      : worker(name) {
    options.url = "http://" + address;
    options.client = name;
    options.directory = std::move(directory);
    options.poll = std::chrono::seconds(20);
    options.first_pause = milliseconds(10);
    options.longest_pause = milliseconds(50);
    options.presence_every = milliseconds(20);
  }
  ~LiveClient() { kill(); }
  void start() {
    stop_ = std::stop_source();
    thread_ = std::jthread([this, token = stop_.get_token()] {
      const auto http = net::make_client({});
      Anywhere machine;
      participant::Observer observer;
      auto outcome = participant::run(Context(token), options, *http, os::real_file_system(),
                                      worker, machine, observer);
      const MutexLock lock(mutex_);
      outcome_ = std::move(outcome);
    });
  }
  /// Also called by the client's own thread.
  void request_kill() { stop_.request_stop(); }
  void kill() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  std::optional<Result<participant::Outcome>> outcome() {
    const MutexLock lock(mutex_);
    return outcome_;
  }

  participant::Options options;
  Worker worker;

 private:
  Mutex mutex_;
  std::optional<Result<participant::Outcome>> outcome_ GUARDED_BY(mutex_);
  std::stop_source stop_;
  std::jthread thread_;
};

class SecureJobs : public ::testing::Test {
 protected:
  SecureJobs() {
    log::configure(log::Format::kText, log::Level::kError);
    sample_.settings.secure = federated::SecureSettings{};
    sample_.settings.quorum = 0.5;
    sample_.settings.minimum_clients = 3;
  }
  ~SecureJobs() override {
    clients_.clear();
    stop();
    log::configure(log::Format::kText, log::Level::kInfo);
  }

  void start() {
    Coordinator::Options options = sample_.options();
    options.settle = std::chrono::seconds(5);  // a busy machine starts the clients slowly
    auto opened =
        Coordinator::open(options, sample_.model(), files_ / "job", os::real_file_system());
    ASSERT_TRUE(opened.ok()) << opened.error();
    job_ = std::move(*opened);
    service_ = std::make_unique<Service>(
        *job_,
        Service::Options{.client_of = [](const net::Request& request) -> Result<std::string> {
          const auto name = request.headers.find("Varda-Client");
          if (!name) return Error(Code::kUnauthenticated, "no name");
          return std::string(*name);
        }});
    net::Server::Options server = service_->server_options();
    if (!address_.empty()) server.listen = address_;
    server_ = net::Server::create(server, service_->handler()).value();
    address_ = server_->address();
    rounds_ = std::jthread([this](const std::stop_token& stop) { (void)job_->run(Context(stop)); });
  }
  void stop() {
    rounds_ = {};
    if (service_) service_->drain();
    if (server_) server_->stop(milliseconds(0));
    server_.reset();
    service_.reset();
    job_.reset();
  }
  LiveClient& client(std::size_t number) {
    const std::string name = sample_.clients()[number];
    auto& out = clients_[name];
    if (!out)
      out = std::make_unique<LiveClient>(name, address_,
                                         files_ / ("client" + std::to_string(number)));
    return *out;
  }
  void start_clients(std::size_t first = 0) {
    for (std::size_t i = first; i < sample_.clients().size(); ++i) client(i).start();
  }
  Snapshot finished() {
    const SteadyTime limit = system_clock().now() + std::chrono::seconds(60);
    while (system_clock().now() < limit) {
      Snapshot now = job_->snapshot();
      if (now.phase == Phase::kFinished) return now;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "the job does not end";
    return job_->snapshot();
  }
  std::vector<float> weights() {
    const auto all = job_->weights().value();
    return {all.values().begin(), all.values().end()};
  }
  /// The sum of the initial model and the weighted means of these clients' changes in each round.
  std::vector<double> expected(const std::vector<std::vector<std::size_t>>& rounds,
                               bool uniform = false) {
    const auto model = sample_.model().weights().values();
    std::vector<double> out(model.begin(), model.end());
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      double weight = 0;
      std::vector<double> sum(out.size());
      for (const std::size_t number : rounds[round]) {
        const std::string name = sample_.clients()[number];
        const double own = uniform ? 1 : static_cast<double>(samples_of(name));
        const auto delta = delta_of(name, static_cast<std::int64_t>(round) + 1, out.size());
        for (std::size_t i = 0; i < out.size(); ++i) sum[i] += own * delta[i];
        weight += own;
      }
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += sum[i] / weight;
    }
    return out;
  }
  static void expect_near(const std::vector<float>& have, const std::vector<double>& want,
                          double bound) {
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t i = 0; i < have.size(); ++i) EXPECT_NEAR(have[i], want[i], bound) << i;
  }
  Answer ask(const std::string& client, const std::string& method, const std::string& target,
             std::string body = "") {
    net::Headers headers;
    if (!client.empty()) headers.add("Varda-Client", client);
    auto answer = http_->call(Context::background().with_timeout(std::chrono::seconds(60)),
                              {.method = method,
                               .url = "http://" + address_ + target,
                               .headers = std::move(headers),
                               .body = std::move(body)});
    EXPECT_TRUE(answer.ok()) << answer.error();
    return answer.ok() ? std::move(*answer) : Answer{};
  }
  Json task(const std::string& client) {
    const Answer answer = ask(client, "GET", "/v1/task?wait=20");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return codec::parse_json(answer.body).value_or(Json());
  }
  static std::string text(const Json& json) { return codec::write_json(json); }

  const os::testing::TestDirectory files_;
  SampleJob sample_{"FedAvg", 5, 2};
  std::unique_ptr<Coordinator> job_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<net::Server> server_;
  std::string address_;
  std::jthread rounds_;
  std::map<std::string, std::unique_ptr<LiveClient>> clients_;
  const std::unique_ptr<net::HttpClient> http_ = net::make_client({});
};

TEST_F(SecureJobs, ModelIsTheOneOfThePlainMean) {
  start();
  start_clients();
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  ASSERT_EQ(end.history.size(), 2u);
  EXPECT_EQ(end.history[0].updates, 5);
  EXPECT_EQ(end.history[0].repeats, 0);
  EXPECT_EQ(end.history[0].training.at("loss"), 0.5);
  // Each client's rounding is below one step, and the weights are samples / 65,536.
  const double step = 8 * 5 / 2147483648.0, sum = 5 * 24 / 65536.0;
  expect_near(weights(), expected({{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}), 2 * 5 * step / sum + 1e-6);
}

TEST_F(SecureJobs, ClientsWeighTheSameWithUniformWeights) {
  sample_.settings.aggregator.parameters = Json::object({{"weighting", "uniform"}});
  start();
  start_clients();
  EXPECT_EQ(finished().reason, "Complete");
  expect_near(weights(), expected({{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}, true), 1e-6);
}

TEST_F(SecureJobs, CentralNoiseGoesToTheSumOfClippedUpdates) {
  federated::PrivacySettings privacy;
  privacy.clip = 0.5;
  privacy.noise_multiplier = 1e-4;
  sample_.settings.privacy = privacy;
  sample_.settings.rounds = 1;
  start();
  start_clients();
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  EXPECT_GT(end.epsilon.value_or(0), 0);
  const auto model = sample_.model().weights().values();
  std::vector<double> want(model.begin(), model.end());
  for (const std::string& name : sample_.clients()) {
    const auto delta = delta_of(name, 1, want.size());
    double squares = 0;
    for (const float value : delta) squares += static_cast<double>(value) * value;
    ASSERT_GT(std::sqrt(squares), privacy.clip);
    // All clients weigh the same, whatever their samples.
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] += delta[i] * privacy.clip / std::sqrt(squares) / 5;
  }
  expect_near(weights(), want, 1e-4);
}

TEST_F(SecureJobs, ClientThatIsKilledInTheTrainingDropsOutAndJoinsTheNextRound) {
  start();
  LiveClient& killed = client(1);
  bool came_back = false;
  killed.worker.on_train = [&](const participant::Task& task) {
    if (task.round == 1) killed.request_kill();
  };
  client(0).worker.on_train = [&](const participant::Task& task) {
    // The killed client comes back before the next round opens.
    if (task.round != 1 || std::exchange(came_back, true)) return;
    while (!killed.outcome()) std::this_thread::yield();
    killed.worker.on_train = {};
    killed.start();
  };
  start_clients();
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  ASSERT_EQ(end.history.size(), 2u);
  EXPECT_EQ(end.history[0].updates, 4);
  EXPECT_EQ(end.history[1].updates, 5);
  EXPECT_EQ(end.history[0].repeats, 0);
  expect_near(weights(), expected({{0, 2, 3, 4}, {0, 1, 2, 3, 4}}), 1e-3);
}

TEST_F(SecureJobs, RoundEndsWithoutAClientThatStaysAway) {
  start();
  LiveClient& killed = client(1);
  killed.worker.on_train = [&](const participant::Task& one) {
    if (one.round == 1) killed.request_kill();
  };
  start_clients();
  while (!killed.outcome()) std::this_thread::yield();
  job_->left(sample_.clients()[1]);  // as `lost_after` does
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  expect_near(weights(), expected({{0, 2, 3, 4}, {0, 2, 3, 4}}), 1e-3);
}

TEST_F(SecureJobs, RestartedAggregatorRepeatsTheRoundWithTheSameModel) {
  start();
  std::atomic<int> at_work = 0;
  std::atomic<bool> go_on = false;
  for (std::size_t i = 0; i < 5; ++i)
    client(i).worker.on_train = [&](const participant::Task&) {
      ++at_work;
      while (!go_on) std::this_thread::yield();
    };
  start_clients();
  while (at_work < 5) std::this_thread::yield();
  stop();
  go_on = true;
  start();
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  ASSERT_EQ(end.history.size(), 2u);
  EXPECT_EQ(end.history[0].repeats, 1);
  EXPECT_EQ(end.history[1].repeats, 0);
  expect_near(weights(), expected({{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}), 1e-3);
}

/// The test takes the steps of this client one by one.
class ByHand {
 public:
  ByHand(std::string name, const Json& task, std::size_t length)
      : name_(std::move(name)),
        task_(task["id"].as_string()),
        base_(codec::Sha256::parse(task["model"]["sha256"].as_string()).value()),
        sum_(name_, {.id = task["secure"]["sum"].as_string(), .length = length}, {}),
        length_(length) {}

  const std::string& name() const { return name_; }
  const std::string& task() const { return task_; }
  const codec::Sha256& base() const { return base_; }
  std::string path(const std::string& part) const { return "/v1/secure/" + task_ + "/" + part; }
  privacy::SumClient& sum() { return sum_; }
  /// The file of an update.
  std::string update(std::span<const float> delta, std::uint64_t samples) {
    const federated::MaskedForm form{.limit = 8, .clients = 5, .weight_max = 65'536};
    auto mine = federated::to_integers(form, delta, samples).value();
    EXPECT_TRUE(sum_.add_masks(mine.values).ok());
    return federated::encode_masked({.task = task_, .base = base_}, mine.values).value();
  }
  /// The file of a masked vector. Before the masks, each of its values is `value`.
  std::string file(std::uint32_t value) {
    std::vector<std::uint32_t> values(length_, value);
    EXPECT_TRUE(sum_.add_masks(values).ok());
    return federated::encode_masked({.task = task_, .base = base_}, values).value();
  }
  std::string upload_path(const std::string& bytes) const {
    return "/v1/updates/" + task_ + "/sha256:" + codec::Sha256::of(bytes).hex();
  }

 private:
  const std::string name_, task_;
  const codec::Sha256 base_;
  privacy::SumClient sum_;
  const std::size_t length_;
};

class SecureMessages : public SecureJobs {
 protected:
  SecureMessages() {
    sample_.settings.rounds = 1;
    sample_.settings.round_deadline = std::chrono::seconds(5);  // a step has one second
  }
  std::size_t length() const {
    return sample_.model().weights().layout().size() + federated::kMaskedTail;
  }
  std::size_t changes() const { return length() - federated::kMaskedTail; }
  void open_round() {
    start();
    for (const std::string& name : sample_.clients()) ask(name, "GET", "/v1/task?wait=0");
  }
  std::unique_ptr<ByHand> by_hand(std::size_t number) {
    const std::string name = sample_.clients()[number];
    return std::make_unique<ByHand>(name, task(name), length());
  }
  void send_keys(ByHand& one) {
    EXPECT_EQ(ask(one.name(), "PUT", one.path("keys"), text(one.sum().keys())).status, 200);
  }
  void take_neighbours(ByHand& one) {
    const Answer answer = ask(one.name(), "GET", one.path("keys") + "?wait=20");
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_TRUE(one.sum().take_neighbours(codec::parse_json(answer.body).value()).ok());
  }
  void send_shares(ByHand& one) {
    const Answer answer = ask(one.name(), "PUT", one.path("shares"), text(one.sum().shares()));
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
  void take_shares(ByHand& one) {
    const Answer answer = ask(one.name(), "GET", one.path("shares") + "?wait=20");
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_TRUE(one.sum().take_shares(codec::parse_json(answer.body).value()).ok());
    EXPECT_EQ(ask(one.name(), "PUT", one.path("opened"), text(one.sum().opened())).status, 200);
  }
  void take_members(ByHand& one) {
    const Answer answer = ask(one.name(), "GET", one.path("opened") + "?wait=20");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Status taken = one.sum().take_members(codec::parse_json(answer.body).value());
    EXPECT_TRUE(taken.ok()) << taken.error();
  }
};

TEST_F(SecureMessages, ClientThatDropsAfterItsKeysIsNotInTheSum) {
  open_round();
  start_clients(1);
  const auto first = by_hand(0);
  send_keys(*first);
  take_neighbours(*first);
  job_->left(first->name());
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  EXPECT_EQ(end.history[0].repeats, 0);
  expect_near(weights(), expected({{1, 2, 3, 4}}), 1e-3);
}

TEST_F(SecureMessages, ClientThatDropsAfterItsSharesIsNotInTheSum) {
  open_round();
  start_clients(1);
  const auto first = by_hand(0);
  send_keys(*first);
  take_neighbours(*first);
  send_shares(*first);
  job_->left(first->name());
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  expect_near(weights(), expected({{1, 2, 3, 4}}), 1e-3);
}

TEST_F(SecureMessages, NeighboursFinishTheSumForAClientThatDropsAfterItsVector) {
  open_round();
  start_clients(1);
  const auto first = by_hand(0);
  send_keys(*first);
  take_neighbours(*first);
  send_shares(*first);
  take_shares(*first);
  take_members(*first);
  const std::string bytes =
      first->update(delta_of(first->name(), 1, changes()), samples_of(first->name()));
  EXPECT_EQ(ask(first->name(), "PUT", first->upload_path(bytes), bytes).status, 201);
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  EXPECT_EQ(end.history[0].updates, 5);
  expect_near(weights(), expected({{0, 1, 2, 3, 4}}), 1e-3);
}

/// The client's shares. Those for the first `count` neighbours cannot be opened.
Json broken_shares(ByHand& one, std::size_t count) {
  Json shares = Json::object();
  for (const auto& [to, sealed] : one.sum().shares()["shares"].as_object()) {
    std::string bytes = codec::unbase64(sealed.as_string()).value();
    if (count > 0) bytes[20] ^= 1;
    if (count > 0) --count;
    shares.set(to, codec::base64(bytes));
  }
  return Json::object({{"shares", std::move(shares)}});
}

class BadShares : public SecureMessages {
 protected:
  /// Opens a round in which so many neighbours cannot open the shares of the first client.
  auto join_with_broken_shares(std::size_t count) {
    open_round();
    start_clients(1);
    auto first = by_hand(0);
    send_keys(*first);
    take_neighbours(*first);
    const std::string shares = text(broken_shares(*first, count));
    EXPECT_EQ(ask(first->name(), "PUT", first->path("shares"), shares).status, 200);
    take_shares(*first);
    return first;
  }
};

TEST_F(BadShares, ClientWithSharesThatNeighboursCannotOpenIsOutOfTheSum) {
  const auto first = join_with_broken_shares(4);
  EXPECT_EQ(ask(first->name(), "GET", first->path("opened") + "?wait=20").status, 403);
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  ASSERT_EQ(end.history.size(), 1u);
  EXPECT_EQ(end.history[0].repeats, 0);
  EXPECT_EQ(end.history[0].updates, 4);
  EXPECT_EQ(end.history[0].refused, 1);
  expect_near(weights(), expected({{1, 2, 3, 4}}), 1e-3);
  ASSERT_FALSE(end.clients.empty());
  EXPECT_EQ(end.clients[0].name, first->name());
  EXPECT_EQ(end.clients[0].reason, "bad_shares: 4 of 4 neighbours cannot open its shares");
}

TEST_F(BadShares, OneShareThatCannotBeOpenedCostsNoClient) {
  const auto first = join_with_broken_shares(1);
  take_members(*first);
  const std::string bytes =
      first->update(delta_of(first->name(), 1, changes()), samples_of(first->name()));
  EXPECT_EQ(ask(first->name(), "PUT", first->upload_path(bytes), bytes).status, 201);
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  EXPECT_EQ(end.history[0].updates, 5);
  EXPECT_EQ(end.history[0].refused, 0);
  expect_near(weights(), expected({{0, 1, 2, 3, 4}}), 1e-3);
}

TEST_F(SecureMessages, FalseReportsDropNoOtherClient) {
  open_round();
  start_clients(1);
  const auto first = by_hand(0);
  send_keys(*first);
  take_neighbours(*first);
  send_shares(*first);
  EXPECT_EQ(ask(first->name(), "GET", first->path("shares") + "?wait=20").status, 200);
  Json all = Json::array();
  for (std::size_t i = 1; i < 5; ++i) all.push_back(sample_.clients()[i]);
  const std::string report = text(Json::object({{"unopened", std::move(all)}}));
  EXPECT_EQ(ask(first->name(), "PUT", first->path("opened"), report).status, 200);
  job_->left(first->name());
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  EXPECT_EQ(end.history[0].repeats, 0);
  EXPECT_EQ(end.history[0].updates, 4);
  EXPECT_EQ(end.history[0].refused, 0);
  expect_near(weights(), expected({{1, 2, 3, 4}}), 1e-3);
}

TEST_F(SecureMessages, KeysWithoutATrustedSignatureStopNoOtherClient) {
  std::set<std::string> trusted;
  std::vector<std::shared_ptr<const codec::Ed25519PrivateKey>> signing;
  for (std::size_t i = 0; i < 5; ++i) {
    signing.push_back(
        std::make_shared<const codec::Ed25519PrivateKey>(codec::Ed25519PrivateKey::generate()));
    const auto key = signing.back()->public_key();
    trusted.insert(std::string(key.bytes.begin(), key.bytes.end()));
    sample_.settings.secure->signers.push_back(key.base64());
  }
  open_round();
  for (std::size_t i = 1; i < 5; ++i)
    client(i).options.secure = {
        .required = true, .trusted_signers = trusted, .signing_key = signing[i]};
  const auto first = by_hand(0);
  const Answer refused = ask(first->name(), "PUT", first->path("keys"), text(first->sum().keys()));
  EXPECT_EQ(refused.status, 403) << refused.body;
  start_clients(1);
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  EXPECT_EQ(end.history[0].repeats, 0);
  EXPECT_EQ(end.history[0].updates, 4);
  expect_near(weights(), expected({{1, 2, 3, 4}}), 1e-3);
  EXPECT_TRUE(end.clients[0].reason.starts_with("bad_signature: ")) << end.clients[0].reason;
}

TEST_F(SecureMessages, ChangedWeightLimitAppliesFromTheNextRoundOn) {
  sample_.settings.rounds = 2;
  sample_.settings.bounds.weight_max = 100;
  open_round();
  const std::string name = sample_.clients()[0];
  const Json before = task(name);
  EXPECT_EQ(before["secure"]["weightMax"].as_double(), 100);
  federated::Settings changed = sample_.settings;
  changed.bounds.weight_max = 20;
  ASSERT_TRUE(job_->update_settings(changed).ok());
  // A client that asks later must weigh like one that asked before.
  const Json after = task(name);
  EXPECT_EQ(after["id"].as_string(), before["id"].as_string());
  EXPECT_EQ(after["secure"]["weightMax"].as_double(), 100);
  start_clients();
  EXPECT_EQ(finished().reason, "Complete");
}

TEST_F(SecureMessages, RoundIsRepeatedIfHalfOfTheNeighboursRevealNothing) {
  open_round();
  std::vector<std::unique_ptr<ByHand>> silent;
  start_clients(3);
  for (std::size_t i = 0; i < 3; ++i) silent.push_back(by_hand(i));
  for (const auto& one : silent) send_keys(*one);
  for (const auto& one : silent) take_neighbours(*one);
  for (const auto& one : silent) send_shares(*one);
  for (const auto& one : silent) take_shares(*one);
  for (const auto& one : silent) take_members(*one);
  for (const auto& one : silent) {
    const std::string bytes = one->file(0);
    EXPECT_EQ(ask(one->name(), "PUT", one->upload_path(bytes), bytes).status, 201);
  }
  // The same clients as new processes take part in the repetition.
  const Answer over = ask(silent[0]->name(), "GET", silent[0]->path("unmask") + "?wait=20");
  EXPECT_EQ(over.status, 200) << over.body;
  for (std::size_t i = 0; i < 3; ++i) client(i).start();
  const Snapshot end = finished();
  EXPECT_EQ(end.reason, "Complete") << end.message;
  EXPECT_EQ(end.history[0].repeats, 1);
  EXPECT_EQ(ask(silent[0]->name(), "PUT", silent[0]->path("unmask"), "{}").status, 409);
  expect_near(weights(), expected({{0, 1, 2, 3, 4}}), 1e-3);
}

TEST_F(SecureMessages, WrongShareOfASurvivorRepeatsTheRound) {
  open_round();
  std::vector<std::unique_ptr<ByHand>> all;
  for (std::size_t i = 0; i < 5; ++i) all.push_back(by_hand(i));
  for (const auto& one : all) send_keys(*one);
  for (const auto& one : all) take_neighbours(*one);
  for (const auto& one : all) send_shares(*one);
  for (const auto& one : all) take_shares(*one);
  for (const auto& one : all) take_members(*one);
  for (const auto& one : all) {
    const std::string bytes = one->update(delta_of(one->name(), 1, changes()), 100);
    EXPECT_EQ(ask(one->name(), "PUT", one->upload_path(bytes), bytes).status, 201);
  }
  // Three of four neighbours unlock a mask, so the sum of four answers needs the wrong share.
  for (std::size_t i = 0; i < 4; ++i) {
    ByHand& one = *all[i];
    const Answer question = ask(one.name(), "GET", one.path("unmask") + "?wait=20");
    Json answer = one.sum().unmask(codec::parse_json(question.body).value()).value();
    if (i == 1) {
      Json share = answer["selfShares"][all[0]->name()];
      std::string bytes = codec::unbase64(share["y"].as_string()).value();
      bytes[7] ^= 1;
      share.set("y", codec::base64(bytes));
      Json shares = answer["selfShares"];
      shares.set(all[0]->name(), std::move(share));
      answer.set("selfShares", std::move(shares));
    }
    EXPECT_EQ(ask(one.name(), "PUT", one.path("unmask"), text(answer)).status, 200);
  }
  const Answer again = ask(all[0]->name(), "GET", "/v1/task?wait=20&after=" + all[0]->task());
  ASSERT_EQ(again.status, 200) << again.body;
  const Json repeated = codec::parse_json(again.body).value();
  EXPECT_EQ(repeated["round"].as_integer(), 1);
  EXPECT_NE(repeated["id"].as_string(), all[0]->task());
}

TEST_F(SecureMessages, JobFailsAfterFiveSumsThatCannotEnd) {
  sample_.settings.quorum = 1;
  open_round();
  // The keys come in each repetition, and no shares.
  for (int sum = 0; sum < 5; ++sum) {
    for (const std::string& name : sample_.clients()) ask(name, "GET", "/v1/task?wait=0");
    std::vector<std::unique_ptr<ByHand>> all;
    for (std::size_t i = 0; i < 5; ++i) all.push_back(by_hand(i));
    for (const auto& one : all) send_keys(*one);
    take_neighbours(*all[0]);
    for (const auto& one : all) job_->left(one->name());
    const Answer over = ask(all[0]->name(), "GET", all[0]->path("shares") + "?wait=20");
    EXPECT_EQ(over.status, 409) << over.body;
  }
  const Snapshot end = finished();
  EXPECT_TRUE(end.failed);
  EXPECT_EQ(end.reason, "SecureAggregationFailed");
  EXPECT_NE(end.message.find("round 1 failed 5 times"), std::string::npos) << end.message;
}

TEST_F(SecureMessages, HostileMessagesAreRefused) {
  open_round();
  std::vector<std::unique_ptr<ByHand>> all;
  for (std::size_t i = 0; i < 5; ++i) all.push_back(by_hand(i));
  ByHand& first = *all[0];
  const auto put = [&](const ByHand& one, const std::string& part, const std::string& body) {
    return ask(one.name(), "PUT", one.path(part), body).status;
  };
  EXPECT_EQ(ask("", "PUT", first.path("keys"), text(first.sum().keys())).status, 401);
  EXPECT_EQ(ask("", "GET", first.path("keys")).status, 401);
  EXPECT_EQ(ask(first.name(), "PUT", "/v1/secure/1-train-00000000/keys", "{}").status, 409);
  EXPECT_EQ(ask(first.name(), "GET", "/v1/secure/1-train-00000000/keys").status, 409);
  EXPECT_EQ(ask(first.name(), "PUT", first.path("secrets"), "{}").status, 404);
  EXPECT_EQ(ask(first.name(), "DELETE", first.path("keys")).status, 405);
  for (const char* body : {"", "[]", "{", "{}", R"({"client": "default/c0", "maskKey": 7})",
                           R"({"client": "default/c0", "cipherKey": "AAAA", "maskKey": "AAAA"})"})
    EXPECT_EQ(put(first, "keys", body), 400) << body;
  // Points of small order would give a secret that everyone knows.
  const std::string zero = codec::base64(std::string(32, '\0'));
  EXPECT_EQ(
      put(first, "keys",
          text(Json::object({{"client", first.name()}, {"cipherKey", zero}, {"maskKey", zero}}))),
      400);
  EXPECT_EQ(put(first, "keys", text(all[1]->sum().keys())), 403);  // another client's name
  EXPECT_EQ(put(first, "keys", std::string(300 << 10, ' ')), 413);
  EXPECT_EQ(put(first, "shares", text(Json::object({{"shares", Json::object()}}))), 409);
  EXPECT_EQ(put(first, "unmask", "{}"), 409);
  const std::string early = R"({"not": "yet"})";
  EXPECT_EQ(ask(first.name(), "PUT", first.upload_path(early), early).status, 403);

  for (const auto& one : all) send_keys(*one);
  send_keys(first);  // a repeated message
  for (const auto& one : all) take_neighbours(*one);
  for (const auto& bad :
       {Json::object(), Json::object({{"default/c1", "AAAA"}}),
        Json::object({{"default/c1", std::string(2000, 'A')}}), Json::object({{"nobody", "AAAA"}})})
    EXPECT_EQ(put(first, "shares", text(Json::object({{"shares", bad}}))), 400) << text(bad);
  for (const auto& one : all) send_shares(*one);
  EXPECT_EQ(ask(first.name(), "GET", first.path("shares") + "?wait=20").status, 200);
  for (const char* body : {"{}", R"({"unopened": 7})", R"({"unopened": ["nobody"]})",
                           R"({"unopened": ["default/c0"]})"})
    EXPECT_EQ(put(first, "opened", body), 400) << body;
  for (const auto& one : all) take_shares(*one);
  for (const auto& one : all) take_members(*one);
  EXPECT_EQ(put(first, "unmask", "{}"), 409);  // vectors first

  // A vector of another length takes its client out of the round, and the others continue.
  const std::string shorter = federated::encode_masked({.task = first.task(), .base = first.base()},
                                                       std::vector<std::uint32_t>(length() - 1))
                                  .value();
  const Answer refused = ask(first.name(), "PUT", first.upload_path(shorter), shorter);
  EXPECT_EQ(refused.status, 422);
  EXPECT_NE(refused.body.find("shape"), std::string::npos) << refused.body;
  for (std::size_t i = 1; i < 5; ++i) {
    const std::string bytes = all[i]->file(0);
    EXPECT_EQ(ask(all[i]->name(), "PUT", all[i]->upload_path(bytes), bytes).status, 201);
    EXPECT_EQ(ask(all[i]->name(), "PUT", all[i]->upload_path(bytes), bytes).status, 200);
    const std::string second = bytes + std::string(4, '\0');
    EXPECT_GE(ask(all[i]->name(), "PUT", all[i]->upload_path(second), second).status, 403);
  }
  ByHand& one = *all[1];
  const Answer question = ask(one.name(), "GET", one.path("unmask") + "?wait=20");
  ASSERT_EQ(question.status, 200) << question.body;
  EXPECT_EQ(ask(first.name(), "GET", first.path("unmask")).status, 403);
  EXPECT_EQ(put(first, "unmask", "{}"), 403);
  const Json request = codec::parse_json(question.body).value();
  Json both = request;
  both.set("dropped", Json::array({request["survivors"].as_array()[0].as_string()}));
  // The client's own part: a server that asks for both secrets gets none.
  const auto asked_for_both = one.sum().unmask(both);
  EXPECT_EQ(asked_for_both.error().code(), Code::kForbidden);
  const Json share = Json::object({{"x", 1}, {"y", codec::base64(std::string(32, 'y'))}});
  for (const Json& bad :
       {Json::object({{"selfShares", Json::object({{"default/c0", share}})}}),
        Json::object({{"keyShares", Json::object({{"default/c2", share}})}}),
        Json::object({{"selfShares", Json::object({{"nobody", share}})}}),
        Json::object({{"selfShares", Json::object({{"default/c2", Json::object({{"x", 0}})}})}})})
    EXPECT_EQ(put(one, "unmask", text(bad)), 400) << text(bad);
  for (std::size_t i = 2; i < 5; ++i) {
    const Answer mine = ask(all[i]->name(), "GET", all[i]->path("unmask") + "?wait=20");
    const auto answer = all[i]->sum().unmask(codec::parse_json(mine.body).value());
    ASSERT_TRUE(answer.ok()) << answer.error();
    // The last one may come when the sum is complete.
    EXPECT_NE(put(*all[i], "unmask", text(*answer)), 400);
  }
  // Client 1 may still answer, since the sum needs its shares.
  const auto answer = one.sum().unmask(request);
  if (answer.ok()) put(one, "unmask", text(*answer));
  // Four vectors of zeros count no client, so the sum is no mean, and the round begins again.
  const Answer over = ask(one.name(), "GET", "/v1/task?wait=20&after=" + one.task());
  EXPECT_EQ(over.status, 200) << over.body;
}

}  // namespace secure_test
}  // namespace
}  // namespace varda::aggregator
