// The API server with clients that compete for the same objects. Their answers must match one
// server that handles one request at a time. Over the in-memory store and the one on disk.
//
// VARDA_SOAK runs many more rounds; VARDA_SEED sets the first seed. A failed round reports its
// seed. Threads interleave differently each time, so the seed repeats the requests, not the
// history.
#include "apiserver/server.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>

#include "checker.h"
#include "codec/json.h"
#include "store/store.h"
#include "workload.h"

namespace varda::linearizability {
namespace {

int rounds() { return std::getenv("VARDA_SOAK") ? 500 : 4; }
std::uint64_t first_seed() {
  const char* const seed = std::getenv("VARDA_SEED");
  return seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10);
}

void expect_linearizable(std::unique_ptr<store::Store> store, const Load& load) {
  apiserver::Server::Options options;
  options.store = store.get();
  auto server = apiserver::Server::create(std::move(options)).value();
  const auto http = net::loopback(server->handler());
  const History history = run(*http, load);
  std::size_t acknowledged = 0, events = 0;
  for (const Operation& op : history.operations)
    acknowledged += op.outcome == Operation::Outcome::kOk;
  for (const Watch& watch : history.watches) events += watch.events.size();
  // Enough must have happened to make the check meaningful.
  EXPECT_EQ(history.operations.size(), static_cast<std::size_t>(load.clients * load.operations));
  EXPECT_GT(acknowledged, history.operations.size() / 4);
  EXPECT_GT(history.log.size(), history.operations.size() / 10);
  EXPECT_GT(events, 0u);
  for (const std::string& problem : check(history))
    ADD_FAILURE() << "seed " << load.seed << ": " << problem;
}

/// A store that runs a function between a reader's read and write, once.
class Meddling final : public store::Store {
 public:
  explicit Meddling(store::Store& below) : below_(below) {}
  void before_next_commit(std::function<void()> what) { meddle_ = std::move(what); }

  Result<store::Revision> commit(std::vector<store::Op> ops) override {
    if (auto what = std::exchange(meddle_, nullptr)) what();
    return below_.commit(std::move(ops));
  }
  Result<std::optional<store::Entry>> get(std::string_view key) override { return below_.get(key); }
  Result<store::Page> list(const store::ListOptions& options) override {
    return below_.list(options);
  }
  Result<std::unique_ptr<store::Watch>> watch(std::string prefix, store::Revision after) override {
    return below_.watch(std::move(prefix), after);
  }
  store::Revision revision() const override { return below_.revision(); }
  store::Revision oldest() const override { return below_.oldest(); }
  Status compact(store::Revision revision) override { return below_.compact(revision); }

 private:
  store::Store& below_;
  std::function<void()> meddle_;
};

// A bug that the search found: a locked replacement that lost against a deletion reported a
// conflict with a missing object.
TEST(Linearizability, ReplacementThatLosesToADeletionReturnsNotFound) {
  const auto below = store::open_memory();
  Meddling store(*below);
  apiserver::Server::Options options;
  options.store = &store;
  options.controllers = false;
  const auto server = apiserver::Server::create(std::move(options)).value();
  const auto http = net::loopback(server->handler());
  const std::string collection = "/api/v1/namespaces/default/configmaps",
                    key = "/registry/core/configmaps/default/a";
  const auto send = [&](const char* method, const std::string& target, const codec::Json& body) {
    net::ClientRequest request{.method = method,
                               .url = target,
                               .headers = {{"Content-Type", "application/json"}},
                               .body = ""};
    request.body = codec::write_json(body);
    return http->call(Context(), std::move(request)).value();
  };
  codec::Json object = codec::parse_json(R"({"metadata":{"name":"a"},"data":{"k":"1"}})").value();
  object = codec::parse_json(send("POST", collection, object).body).value();
  object["data"].set("k", "2");
  store.before_next_commit([&] { ASSERT_TRUE(below->remove(key).ok()); });
  EXPECT_EQ(send("PUT", collection + "/a", object).status, 404);

  object["metadata"].erase("resourceVersion");
  object["metadata"].erase("uid");
  object = codec::parse_json(send("POST", collection, object).body).value();
  object["data"].set("k", "3");
  store.before_next_commit([&] {
    ASSERT_TRUE(
        below->put(key, R"({"metadata":{"name":"a","namespace":"default","uid":"u"}})").ok());
  });
  EXPECT_EQ(send("PUT", collection + "/a", object).status, 409);
}

TEST(Linearizability, ServerWithAMemoryStoreIsLinearizable) {
  for (int round = 1; round <= rounds() && !HasFailure(); ++round) {
    expect_linearizable(
        store::open_memory(),
        {.seed = first_seed() + static_cast<std::uint64_t>(round), .clients = 4 + round % 5});
  }
}

TEST(Linearizability, ServerWithADiskStoreIsLinearizable) {
  std::string pattern = ::testing::TempDir() + "linearizability_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  for (int round = 1; round <= rounds() && !HasFailure(); ++round) {
    auto store = store::open_sqlite(std::filesystem::path(pattern) /
                                    ("store" + std::to_string(round) + ".db"));
    ASSERT_TRUE(store.ok()) << store.error();
    expect_linearizable(std::move(*store),
                        {.seed = first_seed() + static_cast<std::uint64_t>(1000 + round),
                         .clients = 4 + round % 5});
  }
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace varda::linearizability
