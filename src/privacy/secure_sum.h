// Secure aggregation: the server learns the sum of the clients' vectors, and no single vector.
//
// Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", on
// the sparse graph of Bell et al. 2020, "Secure Single-Server Aggregation with (Poly)Logarithmic
// Overhead" (SecAgg+). docs/design/031-privacy.md has the messages and the threats.
//
//   client                             server
//   keys()                ->           take_keys()          everyone
//   take_neighbours()     <-           neighbours_of()
//   shares()              ->           take_shares()        clients that are still there
//   take_shares()         <-           shares_for()
//   opened()              ->           take_opened()        clients that are still there
//   take_members()        <-           members_of()
//   add_masks()           ->           take_vector()        clients that are still there
//   unmask()              <-> request_for(), take_unmasking()
//                                      sum()
//
// Example: with three clients a, b, c, client a sends a's vector + PRG(self a) + PRG(a,b) +
// PRG(a,c), client b sends b's vector + PRG(self b) - PRG(a,b) + PRG(b,c). In the sum the shared
// masks cancel. Neighbours reveal shares of the self masks of clients that sent a vector, and
// shares of the keys of clients that did not. A client reveals one of both kinds for each other
// client. More than half of the neighbours are needed for either. So the server gets both only with
// neighbours that work with it and answer twice.
//
// A client may seal shares that a neighbour cannot open. That neighbour names the client in
// opened(), and reveals no share of it later. The server drops a client if too few neighbours hold
// its shares, before any client adds masks. A false report costs the named client one share, like a
// neighbour that leaves. So fewer than half of the neighbours cannot drop an honest client.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/ed25519.h"
#include "codec/json.h"
#include "privacy/key_agreement.h"
#include "privacy/secret_sharing.h"

namespace varda::privacy {

using codec::Json;

/// The facts of one sum that all participants have in common.
struct SumTask {
  std::string id;  // binds all keys and messages: "job uid/3-train-5f1c"
  std::size_t length = 0;
};

/// Public keys of one client, signed if the client has a signing key.
struct ClientKeys {
  std::string client;
  Key cipher_key{}, mask_key{};
  std::string signer, signature;  // raw bytes; "": unsigned
  Json to_json() const;
  /// kInvalid: the message names the member.
  static Result<ClientKeys> of(const Json& json);
};

/// The neighbours of each client, by name: a ring in an order drawn from `seed`, with `degree` / 2
/// neighbours on each side. Everyone is a neighbour of everyone if there are at most degree + 1
/// clients. `degree` is even, from 2.
std::map<std::string, std::vector<std::string>> neighbour_graph(std::vector<std::string> clients,
                                                                std::size_t degree,
                                                                std::uint64_t seed);
/// Shares that unlock a mask: more than half of the neighbours.
std::size_t threshold_of(std::size_t neighbours);

/// One client in one sum. Steps in the order above; each runs once, and kInvalid ends the client's
/// part in the sum. Not thread-safe.
class SumClient {
 public:
  struct Options {
    const codec::Ed25519PrivateKey* signing_key = nullptr;  // outlives the client
    /// Raw public keys. Not empty: neighbours must be signed by different ones of them.
    std::set<std::string> trusted_signers;
  };
  SumClient(std::string name, SumTask task, Options options);

  Json keys() const;
  /// kInvalid: too few neighbours, a neighbour twice, or one that is not trusted.
  Status take_neighbours(const Json& message);
  Json shares() const;
  /// Opens the shares. Neighbours without a message are out of the sum.
  Status take_shares(const Json& message);
  /// Names the neighbours with shares that cannot be opened.
  Json opened() const;
  /// Only these neighbours are in the sum. kUnavailable: too few with shares that this client could
  /// open. kInvalid: a neighbour without a message.
  Status take_members(const Json& message);
  /// Masks the vector in place. CHECKs the length of the task.
  Status add_masks(std::span<std::uint32_t> vector);
  /// Reveals shares as the server asks. kForbidden: a second request, or one that asks for both
  /// kinds of one client. kUnavailable: fewer survivors than the threshold.
  Result<Json> unmask(const Json& request);

 private:
  struct Neighbour {
    ClientKeys keys;
    bool has_sent = false, is_member = false;
    std::optional<Share> key_share, self_share;  // of the neighbour's secrets; absent: unopened
  };
  enum class Stage { kKeys, kShares, kMembers, kMasks, kUnmask, kDone };
  Status expect(Stage stage) const;

  const std::string name_;
  const SumTask task_;
  const Options options_;
  AgreementKey cipher_key_, mask_key_;
  Key self_seed_;
  Stage stage_ = Stage::kKeys;
  std::size_t threshold_ = 0;
  std::map<std::string, Neighbour> neighbours_;
};

/// The server's part. Not thread-safe. Holds one vector whatever the number of clients. The order
/// of messages within one step changes nothing.
class SumServer {
 public:
  struct Options {
    std::size_t degree = 10;
    std::uint64_t seed = 0;  // of the graph
    /// Raw public keys. Not empty: clients must be signed by different ones of them.
    std::set<std::string> trusted_signers = {};
  };
  SumServer(SumTask task, Options options) : task_(std::move(task)), options_(options) {}

  /// kUnauthenticated: no signature by a trusted key. Neighbours would leave because of it.
  Status take_keys(const std::string& client, const Json& message);
  /// Ends the step of keys. kUnavailable: fewer than three clients.
  Status close_keys();
  Json neighbours_of(const std::string& client) const;

  Status take_shares(const std::string& client, const Json& message);
  /// Ends the step of shares. kUnavailable: too few clients are left.
  Status close_shares();
  Json shares_for(const std::string& client) const;

  Status take_opened(const std::string& client, const Json& message);
  /// Fixes the clients that add masks: those that answered, if enough neighbours hold their shares.
  /// kUnavailable: too few are left.
  Status close_opened();
  /// Clients that add masks.
  const std::set<std::string>& members() const { return shared_; }
  /// Clients that close_opened() dropped because most of their neighbours cannot open their shares,
  /// with the reason.
  const std::map<std::string, std::string>& refused() const { return refused_; }
  Json members_of(const std::string& client) const;

  /// kInvalid: another length, or a client that sent no shares. kAlreadyExists: a second vector.
  Status take_vector(const std::string& client, std::span<const std::uint32_t> masked);
  /// Ends the step of vectors. kUnavailable: too few clients are left.
  Status close_vectors();
  /// For a client that sent a vector.
  Json request_for(const std::string& client) const;

  Status take_unmasking(const std::string& client, const Json& message);
  /// True: sum() has enough shares of every mask.
  bool can_unmask() const;
  /// Removes the masks. kUnavailable: not enough shares. kCorrupt: shares that do not give the key
  /// of a client.
  Result<std::vector<std::uint32_t>> sum();
  /// Clients in the sum.
  const std::set<std::string>& summed() const { return summed_; }

 private:
  enum class Stage { kKeys, kShares, kOpened, kVectors, kUnmask };
  Status expect(Stage stage) const;
  Status check_signature(const ClientKeys& keys) const;
  bool holds_share(const std::string& client, const std::string& owner) const;
  /// Neighbours of `owner` among `left` that hold its shares.
  std::size_t holders_of(const std::string& owner, const std::set<std::string>& left) const;
  /// kUnavailable: the clients of `left` cannot reveal the secrets of `secrets`.
  Status check_enough(const std::set<std::string>& secrets,
                      const std::set<std::string>& left) const;
  std::vector<std::string> neighbours(const std::string& client) const;

  const SumTask task_;
  const Options options_;
  Stage stage_ = Stage::kKeys;
  std::map<std::string, ClientKeys> keys_;
  std::map<std::string, std::vector<std::string>> graph_;
  std::set<std::string> shared_, opened_, summed_;
  std::map<std::string, std::set<std::string>> unopened_;  // by the client that cannot open them
  std::map<std::string, std::string> refused_;
  std::map<std::string, std::map<std::string, std::string>> sealed_;  // to, from
  std::vector<std::uint32_t> sum_;
  std::map<std::string, std::vector<Share>> self_shares_, key_shares_;  // by the mask's client
  std::set<std::string> unmasking_;
};

}  // namespace varda::privacy
