#include "privacy/secure_sum.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "codec/digest.h"
#include "privacy/mask.h"

namespace varda::privacy {

namespace {

constexpr std::size_t kClientsMax = 100'000;
constexpr std::size_t kShareBytes = 65;                      // x, two values
constexpr std::size_t kSealedBytes = 12 + kShareBytes + 16;  // nonce, tag

std::string_view text_of_key(const Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

Result<Key> key_of(std::string_view bytes, std::string_view member) {
  Key out;
  if (bytes.size() != out.size())
    return Error(Code::kInvalid, std::string(member) + ": must have 32 bytes in base64");
  std::memcpy(out.data(), bytes.data(), out.size());
  return out;
}

Result<std::string> bytes_in(const Json& json, const char* member) {
  if (!json[member].is_string())
    return Error(Code::kInvalid, std::string(member) + ": must be text in base64");
  return codec::unbase64(json[member].as_string()).context(member);
}

/// Lengths before the parts, so that no two lists of parts give the same text.
std::string bound_text(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) {
    out += std::to_string(part.size());
    out += ':';
    out += part;
  }
  return out;
}

std::string signed_text(const SumTask& task, const ClientKeys& keys) {
  return bound_text({"varda secure sum keys 1", task.id, keys.client, text_of_key(keys.cipher_key),
                     text_of_key(keys.mask_key)});
}

std::string mask_purpose(const SumTask& task) {
  return bound_text({"varda secure sum mask 1", task.id});
}
std::string cipher_purpose(const SumTask& task) {
  return bound_text({"varda secure sum shares 1", task.id});
}
std::string route_of(const SumTask& task, const std::string& from, const std::string& to) {
  return bound_text({task.id, from, to});
}

Json share_json(const Share& share) {
  return Json::object(
      {{"x", static_cast<int>(share.x)}, {"y", codec::base64(text_of_key(share.y))}});
}

Result<Share> share_of(const Json& json) {
  const std::int64_t x = json["x"].as_integer();
  if (x < 1 || x > static_cast<std::int64_t>(kSharesMax))
    return Error(Code::kInvalid, "x: must be a whole number from 1 to 255");
  TRY(const std::string y, bytes_in(json, "y"));
  TRY(const Key key, key_of(y, "y"));
  return Share{static_cast<std::uint8_t>(x), key};
}

/// The client with the smaller name adds the mask of a pair, the other subtracts it.
Sign sign_for(const std::string& client, const std::string& other) {
  return client < other ? Sign::kPlus : Sign::kMinus;
}

Error wrong_order() {
  return {Code::kInvalid, "this step of the secure sum is over or not yet due"};
}

/// A neighbour's shares of the mask key and of the own seed.
Result<std::pair<Share, Share>> open_shares(const Key& key, const Json& sealed,
                                            const std::string& route) {
  TRY(const std::string bytes, codec::unbase64(sealed.as_string()));
  TRY(const std::string plain, open_sealed(key, bytes, route));
  if (plain.size() != kShareBytes || plain[0] == 0)
    return Error(Code::kCorrupt, "shares of a wrong form");
  const auto x = static_cast<std::uint8_t>(plain[0]);
  TRY(const Key of_key, key_of(std::string_view(plain).substr(1, 32), "key"));
  TRY(const Key of_self, key_of(std::string_view(plain).substr(33), "seed"));
  return std::pair(Share{x, of_key}, Share{x, of_self});
}

std::vector<std::string> names_in(const Json& json) {
  std::vector<std::string> out;
  for (const Json& name : json.as_array()) out.push_back(name.as_string());
  return out;
}

}  // namespace

Json ClientKeys::to_json() const {
  Json out = Json::object({{"client", client},
                           {"cipherKey", codec::base64(text_of_key(cipher_key))},
                           {"maskKey", codec::base64(text_of_key(mask_key))}});
  if (!signature.empty()) {
    out.set("signer", codec::base64(signer));
    out.set("signature", codec::base64(signature));
  }
  return out;
}

Result<ClientKeys> ClientKeys::of(const Json& json) {
  ClientKeys out;
  out.client = json["client"].as_string();
  if (out.client.empty()) return Error(Code::kInvalid, "client: must be a name");
  TRY(const std::string cipher, bytes_in(json, "cipherKey"));
  TRY(out.cipher_key, key_of(cipher, "cipherKey"));
  TRY(const std::string mask, bytes_in(json, "maskKey"));
  TRY(out.mask_key, key_of(mask, "maskKey"));
  if (json.contains("signature")) {
    TRY(out.signer, bytes_in(json, "signer"));
    TRY(out.signature, bytes_in(json, "signature"));
  }
  return out;
}

std::map<std::string, std::vector<std::string>> neighbour_graph(std::vector<std::string> clients,
                                                                std::size_t degree,
                                                                std::uint64_t seed) {
  CHECK(degree >= 2 && degree % 2 == 0);
  std::sort(clients.begin(), clients.end());
  const auto rng = seeded_rng(seed);
  for (std::size_t i = clients.size(); i > 1; --i)
    std::swap(clients[i - 1], clients[rng->below(i)]);
  std::map<std::string, std::vector<std::string>> out;
  const std::size_t count = clients.size();
  const std::size_t side = count <= degree + 1 ? 0 : degree / 2;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::string>& list = out[clients[i]];
    for (std::size_t step = 1; step < count; ++step) {
      if (side == 0 || step <= side || step >= count - side)
        list.push_back(clients[(i + step) % count]);
    }
    std::sort(list.begin(), list.end());
  }
  return out;
}

std::size_t threshold_of(std::size_t neighbours) { return neighbours / 2 + 1; }

// ---- client

SumClient::SumClient(std::string name, SumTask task, Options options)
    : name_(std::move(name)),
      task_(std::move(task)),
      options_(std::move(options)),
      cipher_key_(AgreementKey::generate()),
      mask_key_(AgreementKey::generate()),
      self_seed_(random_key()) {}

Status SumClient::expect(Stage stage) const {
  if (stage_ != stage) return wrong_order();
  return {};
}

Json SumClient::keys() const {
  ClientKeys keys{name_, cipher_key_.public_key(), mask_key_.public_key(), "", ""};
  if (options_.signing_key != nullptr) {
    const codec::Ed25519PublicKey signer = options_.signing_key->public_key();
    keys.signer.assign(signer.bytes.begin(), signer.bytes.end());
    keys.signature = options_.signing_key->sign(signed_text(task_, keys));
  }
  return keys.to_json();
}

Status SumClient::take_neighbours(const Json& message) {
  TRY_VOID(expect(Stage::kKeys));
  std::map<std::string, Neighbour> neighbours;
  std::set<std::string> signers;
  for (const Json& item : message["neighbours"].as_array()) {
    TRY(ClientKeys keys, ClientKeys::of(item));
    if (keys.client == name_ || neighbours.contains(keys.client))
      return Error(Code::kInvalid, "neighbour " + keys.client + " occurs twice");
    if (!options_.trusted_signers.empty()) {
      const auto signer = codec::Ed25519PublicKey::from_bytes(keys.signer);
      if (!signer.ok() || !options_.trusted_signers.contains(keys.signer) ||
          !codec::verify(*signer, signed_text(task_, keys), keys.signature) ||
          !signers.insert(keys.signer).second)
        return Error(Code::kInvalid,
                     "neighbour " + keys.client + " has no signature by a trusted key of its own");
    }
    std::string client = keys.client;
    neighbours.emplace(std::move(client), Neighbour{.keys = std::move(keys)});
  }
  if (neighbours.size() < 2 || neighbours.size() > kSharesMax)
    return Error(Code::kInvalid, "a client of a secure sum needs 2 to 255 neighbours, not " +
                                     std::to_string(neighbours.size()));
  threshold_ = threshold_of(neighbours.size());
  neighbours_ = std::move(neighbours);
  stage_ = Stage::kShares;
  return {};
}

Json SumClient::shares() const {
  CHECK(stage_ == Stage::kShares);
  const auto of_key = split(mask_key_.secret(), threshold_, neighbours_.size());
  const auto of_self = split(self_seed_, threshold_, neighbours_.size());
  Json sealed = Json::object();
  std::size_t number = 0;
  for (const auto& [client, neighbour] : neighbours_) {
    std::string plain(1, static_cast<char>(of_key[number].x));
    plain += text_of_key(of_key[number].y);
    plain += text_of_key(of_self[number].y);
    ++number;
    const auto key = cipher_key_.shared(neighbour.keys.cipher_key, cipher_purpose(task_));
    // The server refuses keys of small order, so an unusable key means a wrong server.
    if (key.ok())
      sealed.set(client, codec::base64(seal(*key, plain, route_of(task_, name_, client))));
  }
  return Json::object({{"shares", std::move(sealed)}});
}

Status SumClient::take_shares(const Json& message) {
  TRY_VOID(expect(Stage::kShares));
  for (auto& [client, neighbour] : neighbours_) {
    const Json& sealed = message["shares"][client];
    if (!sealed.is_string()) continue;
    neighbour.has_sent = true;
    TRY(const Key key, cipher_key_.shared(neighbour.keys.cipher_key, cipher_purpose(task_)));
    const auto shares = open_shares(key, sealed, route_of(task_, client, name_));
    if (!shares.ok()) continue;  // opened() names the neighbour
    neighbour.key_share = shares->first;
    neighbour.self_share = shares->second;
  }
  stage_ = Stage::kMembers;
  return {};
}

Json SumClient::opened() const {
  Json unopened = Json::array();
  for (const auto& [client, neighbour] : neighbours_)
    if (neighbour.has_sent && !neighbour.key_share) unopened.push_back(client);
  return Json::object({{"unopened", std::move(unopened)}});
}

Status SumClient::take_members(const Json& message) {
  TRY_VOID(expect(Stage::kMembers));
  std::set<std::string> members;
  for (const std::string& name : names_in(message["members"])) members.insert(name);
  std::size_t holding = 0;
  for (const std::string& name : members) {
    const auto found = neighbours_.find(name);
    if (found == neighbours_.end() || !found->second.has_sent)
      return Error(Code::kInvalid, "client " + name + " is no neighbour in this sum");
    holding += found->second.key_share ? 1 : 0;
  }
  if (holding < threshold_)
    return Error(Code::kUnavailable,
                 std::to_string(holding) + " of " + std::to_string(neighbours_.size()) +
                     " neighbours are left: the secure sum needs " + std::to_string(threshold_));
  for (auto& [client, neighbour] : neighbours_) {
    neighbour.is_member = members.contains(client);
    if (neighbour.is_member) continue;
    // No request of the server gets these shares any more.
    neighbour.key_share.reset();
    neighbour.self_share.reset();
  }
  stage_ = Stage::kMasks;
  return {};
}

Status SumClient::add_masks(std::span<std::uint32_t> vector) {
  TRY_VOID(expect(Stage::kMasks));
  CHECK(vector.size() == task_.length);
  add_mask(self_seed_, Sign::kPlus, vector);
  for (const auto& [client, neighbour] : neighbours_) {
    if (!neighbour.is_member) continue;
    TRY(Key key, mask_key_.shared(neighbour.keys.mask_key, mask_purpose(task_)));
    add_mask(key, sign_for(name_, client), vector);
    wipe(key);
  }
  stage_ = Stage::kUnmask;
  return {};
}

Result<Json> SumClient::unmask(const Json& request) {
  if (stage_ == Stage::kDone)
    return Error(Code::kForbidden, "this client has revealed the shares of this sum");
  TRY_VOID(expect(Stage::kUnmask));
  std::set<std::string> survivors, dropped;
  for (const std::string& name : names_in(request["survivors"])) survivors.insert(name);
  for (const std::string& name : names_in(request["dropped"])) dropped.insert(name);
  Json self = Json::object(), keys = Json::object();
  for (const std::string& name : survivors) {
    const auto found = neighbours_.find(name);
    if (found == neighbours_.end() || !found->second.self_share)
      return Error(Code::kForbidden, "client " + name + " is no neighbour in this sum");
    if (dropped.contains(name))
      return Error(Code::kForbidden, "the server asks for both secrets of client " + name);
    self.set(name, share_json(*found->second.self_share));
  }
  for (const std::string& name : dropped) {
    const auto found = neighbours_.find(name);
    if (found == neighbours_.end() || !found->second.key_share)
      return Error(Code::kForbidden, "client " + name + " is no neighbour in this sum");
    keys.set(name, share_json(*found->second.key_share));
  }
  if (survivors.size() < threshold_)
    return Error(Code::kUnavailable, std::to_string(survivors.size()) +
                                         " neighbours are in the sum: at least " +
                                         std::to_string(threshold_) + " protect this client");
  stage_ = Stage::kDone;
  return Json::object({{"selfShares", std::move(self)}, {"keyShares", std::move(keys)}});
}

// ---- server

Status SumServer::expect(Stage stage) const {
  if (stage_ != stage) return wrong_order();
  return {};
}

std::vector<std::string> SumServer::neighbours(const std::string& client) const {
  const auto found = graph_.find(client);
  return found == graph_.end() ? std::vector<std::string>() : found->second;
}

Status SumServer::check_signature(const ClientKeys& keys) const {
  if (options_.trusted_signers.empty()) return {};
  const Error refused(Code::kUnauthenticated,
                      "client " + keys.client + " has no signature by a trusted key of its own");
  const auto signer = codec::Ed25519PublicKey::from_bytes(keys.signer);
  if (!signer.ok() || !options_.trusted_signers.contains(keys.signer) ||
      !codec::verify(*signer, signed_text(task_, keys), keys.signature))
    return refused;
  for (const auto& [client, known] : keys_)
    if (client != keys.client && known.signer == keys.signer) return refused;
  return {};
}

Status SumServer::take_keys(const std::string& client, const Json& message) {
  TRY_VOID(expect(Stage::kKeys));
  TRY(ClientKeys keys, ClientKeys::of(message));
  if (keys.client != client)
    return Error(Code::kForbidden, "the keys name client " + keys.client + ", not " + client);
  TRY_VOID(check_signature(keys));
  if (keys_.size() >= kClientsMax)
    return Error(Code::kExhausted, "a secure sum has at most 100000 clients");
  const AgreementKey any = AgreementKey::generate();
  for (const Key& key : {keys.cipher_key, keys.mask_key})
    TRY_VOID(any.shared(key, "check").context("client " + client));
  const auto known = keys_.find(client);
  if (known != keys_.end() && known->second.to_json() != keys.to_json())
    return Error(Code::kAlreadyExists, "client " + client + " has sent other keys");
  keys_.insert_or_assign(client, std::move(keys));
  return {};
}

Status SumServer::close_keys() {
  TRY_VOID(expect(Stage::kKeys));
  if (keys_.size() < 3)
    return Error(Code::kUnavailable,
                 "a secure sum needs at least 3 clients, not " + std::to_string(keys_.size()));
  std::vector<std::string> clients;
  for (const auto& [client, keys] : keys_) clients.push_back(client);
  graph_ = neighbour_graph(std::move(clients), options_.degree, options_.seed);
  stage_ = Stage::kShares;
  return {};
}

Json SumServer::neighbours_of(const std::string& client) const {
  Json list = Json::array();
  for (const std::string& name : neighbours(client)) list.push_back(keys_.at(name).to_json());
  return Json::object({{"neighbours", std::move(list)}});
}

Status SumServer::take_shares(const std::string& client, const Json& message) {
  TRY_VOID(expect(Stage::kShares));
  if (!graph_.contains(client))
    return Error(Code::kForbidden, "client " + client + " sent no keys for this sum");
  const std::vector<std::string> allowed = neighbours(client);
  std::map<std::string, std::string> sealed;
  for (const auto& [to, bytes] : message["shares"].as_object()) {
    const auto sealed_bytes = codec::unbase64(bytes.as_string());
    if (!std::binary_search(allowed.begin(), allowed.end(), to) || !sealed_bytes.ok() ||
        sealed_bytes->size() != kSealedBytes)
      return Error(Code::kInvalid, "shares." + to + ": no neighbour, or not a sealed share");
    sealed.emplace(to, bytes.as_string());
  }
  // Both ends of a pair must add the pair's mask, or none.
  if (sealed.size() != allowed.size())
    return Error(Code::kInvalid, "client " + client + " has shares for " +
                                     std::to_string(sealed.size()) + " of " +
                                     std::to_string(allowed.size()) + " neighbours");
  for (auto& [to, bytes] : sealed) sealed_[to][client] = std::move(bytes);
  shared_.insert(client);
  return {};
}

bool SumServer::holds_share(const std::string& client, const std::string& owner) const {
  const auto at = unopened_.find(client);
  return at == unopened_.end() || !at->second.contains(owner);
}

std::size_t SumServer::holders_of(const std::string& owner,
                                  const std::set<std::string>& left) const {
  const std::vector<std::string> all = neighbours(owner);
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(),
      [&](const std::string& name) { return left.contains(name) && holds_share(name, owner); }));
}

Status SumServer::check_enough(const std::set<std::string>& secrets,
                               const std::set<std::string>& left) const {
  for (const std::string& client : secrets) {
    const std::size_t all = neighbours(client).size(), present = holders_of(client, left);
    if (present < threshold_of(all))
      return Error(Code::kUnavailable, "client " + client + " has " + std::to_string(present) +
                                           " of " + std::to_string(all) +
                                           " neighbours left: a secure sum needs more than half");
  }
  if (left.size() < 3)
    return Error(Code::kUnavailable,
                 std::to_string(left.size()) + " clients are left: a secure sum needs at least 3");
  return {};
}

Status SumServer::close_shares() {
  TRY_VOID(expect(Stage::kShares));
  TRY_VOID(check_enough(shared_, shared_));
  stage_ = Stage::kOpened;
  return {};
}

Json SumServer::shares_for(const std::string& client) const {
  Json out = Json::object();
  if (const auto found = sealed_.find(client); found != sealed_.end()) {
    for (const auto& [from, bytes] : found->second) out.set(from, bytes);
  }
  return Json::object({{"shares", std::move(out)}});
}

Status SumServer::take_opened(const std::string& client, const Json& message) {
  TRY_VOID(expect(Stage::kOpened));
  if (!shared_.contains(client))
    return Error(Code::kForbidden, "client " + client + " sent no shares for this sum");
  if (!message["unopened"].is_array())
    return Error(Code::kInvalid, "unopened: must be a list of clients");
  const std::vector<std::string> allowed = neighbours(client);
  std::set<std::string> unopened;
  for (const std::string& name : names_in(message["unopened"])) {
    if (!std::binary_search(allowed.begin(), allowed.end(), name) || !shared_.contains(name))
      return Error(Code::kInvalid, "unopened: " + name + " sent no shares to this client");
    unopened.insert(name);
  }
  // The first answer counts: shares of a client must not come and go.
  if (opened_.insert(client).second) unopened_[client] = std::move(unopened);
  return {};
}

Status SumServer::close_opened() {
  TRY_VOID(expect(Stage::kOpened));
  std::map<std::string, std::size_t> reports;
  for (const auto& [client, unopened] : unopened_)
    for (const std::string& owner : unopened) ++reports[owner];
  for (const auto& [owner, count] : reports) {
    const std::size_t all = neighbours(owner).size();
    // One neighbour may report falsely. With two neighbours, a single report would be a majority.
    if (count < 2 || count <= all - threshold_of(all)) continue;
    refused_.emplace(owner, std::to_string(count) + " of " + std::to_string(all) +
                                " neighbours cannot open its shares");
  }
  std::set<std::string> left;
  for (const std::string& client : opened_)
    if (!refused_.contains(client)) left.insert(client);
  // A client that leaves takes its shares along, so each removal may be the cause of another one.
  for (bool again = true; again;) {
    again = false;
    for (const auto& [owner, count] : reports)
      again |= left.contains(owner) &&
               holders_of(owner, left) < threshold_of(neighbours(owner).size()) &&
               left.erase(owner) > 0;
  }
  shared_ = std::move(left);
  TRY_VOID(check_enough(shared_, shared_));
  sum_.assign(task_.length, 0);
  stage_ = Stage::kVectors;
  return {};
}

Json SumServer::members_of(const std::string& client) const {
  Json members = Json::array();
  for (const std::string& name : neighbours(client))
    if (shared_.contains(name)) members.push_back(name);
  return Json::object({{"members", std::move(members)}});
}

Status SumServer::take_vector(const std::string& client, std::span<const std::uint32_t> masked) {
  TRY_VOID(expect(Stage::kVectors));
  if (!shared_.contains(client))
    return Error(Code::kInvalid, "client " + client + " is not in this sum");
  if (masked.size() != task_.length)
    return Error(Code::kInvalid, "the vector has " + std::to_string(masked.size()) +
                                     " values, not " + std::to_string(task_.length));
  if (!summed_.insert(client).second)
    return Error(Code::kAlreadyExists, "client " + client + " has sent a vector");
  for (std::size_t i = 0; i < masked.size(); ++i) sum_[i] += masked[i];
  return {};
}

Status SumServer::close_vectors() {
  TRY_VOID(expect(Stage::kVectors));
  TRY_VOID(check_enough(shared_, summed_));
  stage_ = Stage::kUnmask;
  return {};
}

Json SumServer::request_for(const std::string& client) const {
  Json survivors = Json::array(), dropped = Json::array();
  for (const std::string& name : neighbours(client)) {
    if (!holds_share(client, name)) continue;
    if (summed_.contains(name)) {
      survivors.push_back(name);
    } else if (shared_.contains(name)) {
      dropped.push_back(name);
    }
  }
  return Json::object({{"survivors", std::move(survivors)}, {"dropped", std::move(dropped)}});
}

Status SumServer::take_unmasking(const std::string& client, const Json& message) {
  TRY_VOID(expect(Stage::kUnmask));
  if (!summed_.contains(client))
    return Error(Code::kForbidden, "client " + client + " is not in this sum");
  const std::vector<std::string> allowed = neighbours(client);
  std::vector<std::pair<std::string, Share>> self, keys;
  for (const bool of_self : {true, false}) {
    const Json& shares = message[of_self ? "selfShares" : "keyShares"];
    for (const auto& [owner, json] : shares.as_object()) {
      const bool expected = std::binary_search(allowed.begin(), allowed.end(), owner) &&
                            shared_.contains(owner) && summed_.contains(owner) == of_self &&
                            holds_share(client, owner);
      if (!expected)
        return Error(Code::kInvalid, "the server did not ask for this share of client " + owner);
      TRY(const Share share, share_of(json).context("share of client " + owner));
      (of_self ? self : keys).emplace_back(owner, share);
    }
  }
  if (!unmasking_.insert(client).second) return {};  // a repeated message
  for (auto& [owner, share] : self) self_shares_[owner].push_back(share);
  for (auto& [owner, share] : keys) key_shares_[owner].push_back(share);
  return {};
}

bool SumServer::can_unmask() const {
  if (stage_ != Stage::kUnmask) return false;
  const auto enough = [&](const auto& shares, const std::string& owner) {
    const auto found = shares.find(owner);
    return found != shares.end() && found->second.size() >= threshold_of(neighbours(owner).size());
  };
  for (const std::string& client : shared_) {
    if (summed_.contains(client) ? !enough(self_shares_, client) : !enough(key_shares_, client))
      return false;
  }
  return true;
}

Result<std::vector<std::uint32_t>> SumServer::sum() {
  TRY_VOID(expect(Stage::kUnmask));
  if (!can_unmask())
    return Error(Code::kUnavailable, "too few clients have revealed shares for the secure sum");
  std::vector<std::uint32_t> out = sum_;
  for (const std::string& client : shared_) {
    const std::size_t threshold = threshold_of(neighbours(client).size());
    if (summed_.contains(client)) {
      TRY(Key seed, join_shares(self_shares_.at(client), threshold));
      add_mask(seed, Sign::kMinus, out);
      wipe(seed);
      continue;
    }
    TRY(Key secret, join_shares(key_shares_.at(client), threshold));
    const AgreementKey key = AgreementKey::of(secret);
    wipe(secret);
    if (key.public_key() != keys_.at(client).mask_key)
      return Error(Code::kCorrupt, "the revealed shares are not those of client " + client);
    for (const std::string& other : neighbours(client)) {
      if (!summed_.contains(other)) continue;
      TRY(Key mask, key.shared(keys_.at(other).mask_key, mask_purpose(task_)));
      // The survivor added this mask; its sign is seen from the survivor.
      add_mask(mask, sign_for(other, client) == Sign::kPlus ? Sign::kMinus : Sign::kPlus, out);
      wipe(mask);
    }
  }
  return out;
}

}  // namespace varda::privacy
