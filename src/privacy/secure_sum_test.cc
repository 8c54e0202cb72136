// The whole protocol in memory, with clients that leave at each step and servers that cheat.
#include "privacy/secure_sum.h"

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/digest.h"

namespace varda::privacy {
namespace {

constexpr std::size_t kLength = 37;

std::string client_name(std::size_t number) { return "default/worker-" + std::to_string(number); }

/// A sum of many clients; `leaves` has the step at which a client leaves.
struct SumRun {
  std::map<std::string, int> leaves;  // 1: after keys, 2: after shares, 3: after the vector
  std::map<std::string, std::vector<std::string>> unreadable;  // by sender: neighbours
  std::map<std::string, Json::Array> reports;                  // instead of the true ones
  std::map<std::string, std::unique_ptr<SumClient>> clients;
  std::map<std::string, std::vector<std::uint32_t>> vectors;
  SumTask task{"job/1", kLength};
  SumServer server;

  SumRun(std::size_t count, std::size_t degree, std::uint64_t seed)
      : server(task, {.degree = degree, .seed = seed}) {
    const auto rng = seeded_rng(seed);
    for (std::size_t i = 0; i < count; ++i) {
      clients[client_name(i)] =
          std::make_unique<SumClient>(client_name(i), task, SumClient::Options{});
      for (std::size_t n = 0; n < kLength; ++n)
        vectors[client_name(i)].push_back(static_cast<std::uint32_t>(rng->next()));
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, client] : clients) out.push_back(name);
    return out;
  }

  bool is_there(const std::string& name, int step) const {
    const auto found = leaves.find(name);
    return found == leaves.end() || found->second > step;
  }

  Result<std::vector<std::uint32_t>> go() {
    for (auto& [name, client] : clients) TRY_VOID(server.take_keys(name, client->keys()));
    TRY_VOID(server.close_keys());
    for (auto& [name, client] : clients) {
      if (!is_there(name, 1)) continue;
      TRY_VOID(client->take_neighbours(server.neighbours_of(name)));
      TRY_VOID(server.take_shares(name, broken(name, client->shares())));
    }
    TRY_VOID(server.close_shares());
    for (auto& [name, client] : clients) {
      TRY_VOID(open(name, *client));
    }
    TRY_VOID(server.close_opened());
    for (auto& [name, client] : clients) {
      if (!is_there(name, 2) || !server.members().contains(name)) continue;
      TRY_VOID(client->take_members(server.members_of(name)));
      std::vector<std::uint32_t> masked = vectors[name];
      TRY_VOID(client->add_masks(masked));
      EXPECT_NE(masked, vectors[name]);
      TRY_VOID(server.take_vector(name, masked));
    }
    TRY_VOID(server.close_vectors());
    for (auto& [name, client] : clients) {
      if (!is_there(name, 3) || !server.members().contains(name) || reports.contains(name))
        continue;
      TRY(const Json revealed, client->unmask(server.request_for(name)));
      TRY_VOID(server.take_unmasking(name, revealed));
    }
    return server.sum();
  }

  /// A client that leaves after its shares also opens those of the others.
  Status open(const std::string& name, SumClient& client) {
    if (!is_there(name, 1)) return {};
    TRY_VOID(client.take_shares(server.shares_for(name)));
    Json report = client.opened();
    if (const auto found = reports.find(name); found != reports.end())
      report = Json::object({{"unopened", Json(found->second)}});
    return server.take_opened(name, report);
  }

  Json broken(const std::string& name, Json message) const {
    const auto found = unreadable.find(name);
    if (found == unreadable.end()) return message;
    Json shares = message["shares"];
    for (const std::string& to : found->second) {
      std::string bytes = codec::unbase64(shares[to].as_string()).value();
      bytes.back() ^= 1;
      shares.set(to, codec::base64(bytes));
    }
    return Json::object({{"shares", std::move(shares)}});
  }

  std::vector<std::uint32_t> expected() const {
    std::vector<std::uint32_t> out(kLength);
    for (const auto& [name, vector] : vectors) {
      if (!server.summed().contains(name)) continue;
      for (std::size_t i = 0; i < kLength; ++i) out[i] += vector[i];
    }
    return out;
  }
};

TEST(SecureSum, AllClientsGiveTheExactSum) {
  for (const std::size_t count : {3, 4, 11, 12, 40}) {
    SumRun run(count, 10, count);
    const auto sum = run.go();
    ASSERT_TRUE(sum.ok()) << sum.error();
    EXPECT_EQ(*sum, run.expected());
    EXPECT_EQ(run.server.summed().size(), count);
  }
}

TEST(SecureSum, RandomLeaversLeaveTheSumOfTheRest) {
  const auto rng = seeded_rng(77);
  int exact = 0;
  for (std::uint64_t round = 0; round < 25; ++round) {
    SumRun run(6 + rng->below(20), 10, round);
    for (const auto& [name, client] : run.clients) {
      if (rng->below(6) == 0) run.leaves[name] = static_cast<int>(1 + rng->below(3));
    }
    const auto sum = run.go();
    if (!sum.ok()) {
      EXPECT_EQ(sum.error().code(), Code::kUnavailable) << sum.error();
      continue;
    }
    EXPECT_EQ(*sum, run.expected()) << round;
    ++exact;
  }
  EXPECT_GT(exact, 15);
}

TEST(SecureSum, TooFewClientsEndWithoutASum) {
  SumRun two(2, 10, 1);
  EXPECT_EQ(two.go().error().code(), Code::kUnavailable);
  SumRun leaving(10, 4, 1);
  for (int i = 0; i < 8; ++i) leaving.leaves[client_name(static_cast<std::size_t>(i))] = 2;
  EXPECT_EQ(leaving.go().error().code(), Code::kUnavailable);
}

TEST(SecureSum, SenderOfSharesThatMostNeighboursCannotOpenIsDroppedBeforeTheMasks) {
  for (const std::size_t count : {5, 20}) {
    SumRun run(count, 6, 3);
    const auto graph = neighbour_graph(run.names(), 6, 3);
    run.unreadable[client_name(0)] = graph.at(client_name(0));
    const auto sum = run.go();
    ASSERT_TRUE(sum.ok()) << sum.error();
    EXPECT_EQ(*sum, run.expected());
    EXPECT_EQ(run.server.summed().size(), count - 1);
    ASSERT_EQ(run.server.refused().size(), 1U);
    EXPECT_EQ(run.server.refused().begin()->first, client_name(0));
  }
}

TEST(SecureSum, SenderStaysInTheSumWhileMoreThanHalfOfTheNeighboursHoldItsShares) {
  SumRun run(5, 6, 3);
  run.unreadable[client_name(0)] = {client_name(2)};
  const auto sum = run.go();
  ASSERT_TRUE(sum.ok()) << sum.error();
  EXPECT_EQ(*sum, run.expected());
  EXPECT_EQ(run.server.summed().size(), 5U);
  EXPECT_TRUE(run.server.refused().empty());
  // The server does not ask client 2 for a share that client 2 cannot have.
  const Json asked = run.server.request_for(client_name(2));
  for (const Json& name : asked["survivors"].as_array())
    EXPECT_NE(name.as_string(), client_name(0));
}

TEST(SecureSum, SenderWithTooFewHoldersIsDropped) {
  // Client 0 has four neighbours. Two hold its shares, and three must.
  SumRun run(5, 6, 3);
  run.unreadable[client_name(0)] = {client_name(1), client_name(2)};
  const auto sum = run.go();
  ASSERT_TRUE(sum.ok()) << sum.error();
  EXPECT_EQ(run.server.summed().size(), 4U);
  EXPECT_EQ(*sum, run.expected());
}

TEST(SecureSum, FalseReportsOfFewerThanHalfOfTheNeighboursDropNoClient) {
  const auto rng = seeded_rng(5);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SumRun run(5 + rng->below(20), 8, seed);
    const auto graph = neighbour_graph(run.names(), 8, seed);
    for (const std::string& name : graph.at(client_name(0)))
      run.reports[client_name(0)].push_back(name);
    const auto sum = run.go();
    ASSERT_TRUE(sum.ok()) << sum.error();
    EXPECT_EQ(*sum, run.expected());
    EXPECT_EQ(run.server.summed().size(), run.clients.size());
    EXPECT_TRUE(run.server.refused().empty());
  }
}

TEST(SecureSum, ClientRevealsNothingAboutANeighbourThatWasDroppedBeforeTheMasks) {
  SumRun run(5, 10, 2);
  run.unreadable[client_name(4)] = {client_name(0), client_name(1), client_name(2)};
  for (auto& [name, client] : run.clients) run.leaves.try_emplace(name, 3);
  EXPECT_FALSE(run.go().ok());  // no client has revealed a share
  // Client 3 could open the shares of client 4.
  SumClient& client = *run.clients[client_name(3)];
  const Json asked = run.server.request_for(client_name(3));
  for (const char* list : {"survivors", "dropped"}) {
    Json cheating = asked;
    cheating.find(list)->push_back(client_name(4));
    EXPECT_EQ(client.unmask(cheating).error().code(), Code::kForbidden) << list;
  }
}

TEST(SecureSum, ServerThatHidesMostNeighboursGetsNoVector) {
  SumRun run(5, 10, 2);
  for (auto& [name, client] : run.clients)
    ASSERT_TRUE(run.server.take_keys(name, client->keys()).ok());
  ASSERT_TRUE(run.server.close_keys().ok());
  for (auto& [name, client] : run.clients) {
    ASSERT_TRUE(client->take_neighbours(run.server.neighbours_of(name)).ok());
    ASSERT_TRUE(run.server.take_shares(name, client->shares()).ok());
  }
  ASSERT_TRUE(run.server.close_shares().ok());
  SumClient& client = *run.clients[client_name(0)];
  ASSERT_TRUE(client.take_shares(run.server.shares_for(client_name(0))).ok());
  const auto members = [](Json list) { return Json::object({{"members", std::move(list)}}); };
  EXPECT_EQ(
      client.take_members(members(Json::array({client_name(1), client_name(2)}))).error().code(),
      Code::kUnavailable);
  EXPECT_EQ(client.take_members(members(Json::array({"default/stranger"}))).error().code(),
            Code::kInvalid);
}

TEST(SecureSum, ServerRefusesKeysWithoutATrustedSignature) {
  const SumTask task{"job/1", 1};
  const auto one = codec::Ed25519PrivateKey::generate(), two = codec::Ed25519PrivateKey::generate();
  std::set<std::string> trusted;
  for (const auto* key : {&one, &two}) {
    const auto raw = key->public_key().bytes;
    trusted.insert(std::string(raw.begin(), raw.end()));
  }
  SumServer server(task, {.trusted_signers = trusted});
  const auto take = [&](int number, const codec::Ed25519PrivateKey* signer, const SumTask& of) {
    const std::string name = client_name(static_cast<std::size_t>(number));
    return server.take_keys(name, SumClient(name, of, {signer, {}}).keys());
  };
  const auto stranger = codec::Ed25519PrivateKey::generate();
  EXPECT_EQ(take(1, nullptr, task).error().code(), Code::kUnauthenticated);
  EXPECT_EQ(take(1, &stranger, task).error().code(), Code::kUnauthenticated);
  EXPECT_EQ(take(1, &one, {"job/2", 1}).error().code(), Code::kUnauthenticated);
  EXPECT_TRUE(take(1, &one, task).ok());
  EXPECT_EQ(take(2, &one, task).error().code(), Code::kUnauthenticated);  // one key, one client
  EXPECT_TRUE(take(2, &two, task).ok());
}

TEST(SecureSum, TheGraphIsRegularAndSymmetric) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < 50; ++i) names.push_back(client_name(i));
  const auto graph = neighbour_graph(names, 8, 3);
  EXPECT_EQ(graph, neighbour_graph({names.rbegin(), names.rend()}, 8, 3));
  EXPECT_NE(graph, neighbour_graph(names, 8, 4));
  for (const auto& [name, list] : graph) {
    EXPECT_EQ(list.size(), 8U);
    for (const std::string& other : list) {
      EXPECT_NE(other, name);
      const auto& back = graph.at(other);
      EXPECT_NE(std::find(back.begin(), back.end(), name), back.end());
    }
  }
}

/// Clients in the last step, and a server that asks.
struct Asked : SumRun {
  Asked() : SumRun(5, 10, 2) {
    leaves[client_name(4)] = 2;
    for (auto& [name, client] : clients) leaves.try_emplace(name, 3);
    EXPECT_FALSE(go().ok());  // no client has revealed a share
  }
};

TEST(SecureSum, AClientRevealsOneSecretOfEachNeighbourOnce) {
  Asked run;
  SumClient& client = *run.clients[client_name(0)];
  Json both = run.server.request_for(client_name(0));
  EXPECT_EQ(both["dropped"].as_array().size(), 1U);
  Json cheating = both;
  cheating.find("dropped")->push_back(client_name(1));
  EXPECT_EQ(client.unmask(cheating).error().code(), Code::kForbidden);
  Json stranger = both;
  stranger.find("survivors")->push_back("default/stranger");
  EXPECT_EQ(client.unmask(stranger).error().code(), Code::kForbidden);
  Json alone =
      Json::object({{"survivors", Json::array({client_name(1)})}, {"dropped", Json::array()}});
  EXPECT_EQ(client.unmask(alone).error().code(), Code::kUnavailable);
  ASSERT_TRUE(client.unmask(both).ok());
  EXPECT_EQ(client.unmask(both).error().code(), Code::kForbidden);
}

TEST(SecureSum, FewerThanTheThresholdOfSharesUnlockNothing) {
  Asked run;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto revealed =
        run.clients[client_name(i)]->unmask(run.server.request_for(client_name(i)));
    ASSERT_TRUE(revealed.ok());
    ASSERT_TRUE(run.server.take_unmasking(client_name(i), *revealed).ok());
  }
  EXPECT_FALSE(run.server.can_unmask());
  EXPECT_EQ(run.server.sum().error().code(), Code::kUnavailable);
}

TEST(SecureSum, WrongSharesOfAKeyAreFound) {
  Asked run;
  for (std::size_t i = 0; i < 4; ++i) {
    auto revealed = run.clients[client_name(i)]->unmask(run.server.request_for(client_name(i)));
    ASSERT_TRUE(revealed.ok());
    Json* share = revealed->find("keyShares")->find(client_name(4));
    share->set("y", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    ASSERT_TRUE(run.server.take_unmasking(client_name(i), *revealed).ok());
  }
  EXPECT_EQ(run.server.sum().error().code(), Code::kCorrupt);
}

TEST(SecureSum, SignedKeysAreRequiredWhereTheListIsSet) {
  const SumTask task{"job/1", 1};
  std::vector<codec::Ed25519PrivateKey> signing;
  std::set<std::string> trusted;
  for (int i = 0; i < 3; ++i) {
    signing.push_back(codec::Ed25519PrivateKey::generate());
    const auto key = signing.back().public_key();
    trusted.insert(std::string(key.bytes.begin(), key.bytes.end()));
  }
  const auto keys_of = [&](int number, const codec::Ed25519PrivateKey* signer, const SumTask& of) {
    return SumClient(client_name(static_cast<std::size_t>(number)), of, {signer, {}}).keys();
  };
  const auto accepts = [&](Json one, Json two) {
    SumClient client(client_name(0), task, {&signing[0], trusted});
    return client
        .take_neighbours(
            Json::object({{"neighbours", Json::array({std::move(one), std::move(two)})}}))
        .ok();
  };
  EXPECT_TRUE(accepts(keys_of(1, &signing[1], task), keys_of(2, &signing[2], task)));
  EXPECT_FALSE(accepts(keys_of(1, &signing[1], task), keys_of(2, nullptr, task)));
  EXPECT_FALSE(accepts(keys_of(1, &signing[1], task), keys_of(2, &signing[1], task)));
  EXPECT_FALSE(accepts(keys_of(1, &signing[1], task), keys_of(2, &signing[2], {"job/2", 1})));
  const auto stranger = codec::Ed25519PrivateKey::generate();
  EXPECT_FALSE(accepts(keys_of(1, &signing[1], task), keys_of(2, &stranger, task)));
}

TEST(SecureSum, HostileMessagesAreRefused) {
  SumRun run(4, 10, 1);
  const std::string name = client_name(0);
  EXPECT_FALSE(run.server.take_keys("default/other", run.clients[name]->keys()).ok());
  Json weak = run.clients[name]->keys();
  weak.set("maskKey", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");  // of small order
  EXPECT_FALSE(run.server.take_keys(name, weak).ok());
  EXPECT_FALSE(run.server.take_keys(name, Json::array()).ok());
  EXPECT_FALSE(run.server.take_shares(name, Json::object()).ok());
  for (auto& [client, state] : run.clients)
    ASSERT_TRUE(run.server.take_keys(client, state->keys()).ok());
  ASSERT_TRUE(run.server.take_keys(name, run.clients[name]->keys()).ok());  // repeated
  EXPECT_EQ(run.server.take_keys(name, SumClient(name, run.task, {}).keys()).error().code(),
            Code::kAlreadyExists);
  ASSERT_TRUE(run.server.close_keys().ok());
  EXPECT_FALSE(run.server.take_shares(name, Json::object()).ok());
  EXPECT_FALSE(run.server.take_shares("default/other", Json::object()).ok());
  const std::vector<std::uint32_t> vector(kLength);
  EXPECT_FALSE(run.server.take_vector(name, vector).ok());
  EXPECT_FALSE(run.clients[name]->take_neighbours(Json()).ok());
}

}  // namespace
}  // namespace varda::privacy
