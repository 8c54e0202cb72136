// Messages of secure aggregation: a hostile client against the server, a hostile server against a
// client.
//
// Input: lines of JSON. Each line goes to every step of a server with three honest clients, and to
// a client in every step. Honest clients finish the sum whatever a fourth client sends.
#include "privacy/secure_sum.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json.h"
#include "input.h"

namespace {

using namespace varda;
using codec::Json;

constexpr std::size_t kLength = 3;

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const privacy::SumTask task{.id = "job/1-train", .length = kLength};
  fuzz::Input input(data, size);
  std::vector<Json> messages;
  while (messages.size() < 4 && !input.rest().empty()) {
    const auto json = codec::parse_json(input.line(), {.depth_max = 8, .nodes_max = 4000});
    messages.push_back(json.ok() ? *json : Json());
  }
  messages.resize(4);
  const std::string hostile = "d";
  const auto harass = [&](const auto& step) {
    for (const Json& message : messages) (void)step(message);
  };

  privacy::SumServer server(task, {.degree = 4, .seed = 1});
  std::map<std::string, privacy::SumClient> clients;
  for (const char* name : {"a", "b", "c"}) {
    clients.emplace(name, privacy::SumClient(name, task, {}));
    check(server.take_keys(name, clients.at(name).keys()).ok());
  }
  harass([&](const Json& json) { return server.take_keys(hostile, json); });
  check(server.close_keys().ok());
  for (auto& entry : clients) {
    const std::string& name = entry.first;
    privacy::SumClient& client = entry.second;
    // A server that sends nonsense stays where it is.
    harass([&](const Json& json) {
      privacy::SumClient victim(name, task, {});
      return victim.take_neighbours(json);
    });
    check(client.take_neighbours(server.neighbours_of(name)).ok());
    check(server.take_shares(name, client.shares()).ok());
  }
  harass([&](const Json& json) { return server.take_shares(hostile, json); });
  if (!server.close_shares().ok()) return 0;
  for (auto& entry : clients) {
    const std::string& name = entry.first;
    privacy::SumClient& client = entry.second;
    harass([&](const Json& json) {
      privacy::SumClient victim(name, task, {});
      check(victim.take_neighbours(server.neighbours_of(name)).ok());
      (void)victim.take_shares(json);
      (void)victim.opened();
      return victim.take_members(json);
    });
    check(client.take_shares(server.shares_for(name)).ok());
    const Json report = client.opened();
    for (const Json& one : report["unopened"].as_array()) check(one.as_string() == hostile);
    check(server.take_opened(name, client.opened()).ok());
    harass([&](const Json& json) { return server.take_opened(hostile, json); });
  }
  check(server.close_opened().ok());
  for (auto& entry : clients) {
    const std::string& name = entry.first;
    privacy::SumClient& client = entry.second;
    harass([&](const Json& json) { return client.take_members(json); });
    if (!client.take_members(server.members_of(name)).ok()) return 0;
    std::vector<std::uint32_t> vector(kLength, 7);
    check(client.add_masks(vector).ok());
    check(server.take_vector(name, vector).ok());
  }
  check(server.close_vectors().ok());
  harass([&](const Json& json) { return server.take_unmasking(hostile, json); });
  for (auto& [name, client] : clients) {
    const auto answer = client.unmask(server.request_for(name));
    if (!answer.ok()) return 0;
    check(server.take_unmasking(name, *answer).ok());
  }
  const auto sum = server.sum();
  check(sum.ok());
  for (const std::uint32_t value : *sum) check(value == 3 * 7);
  return 0;
}
