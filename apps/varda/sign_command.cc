// sign: makes keys and signatures of model versions.
#include <cstdio>
#include <memory>

#include "codec/digest.h"
#include "codec/ed25519.h"
#include "command.h"
#include "hosting/model_keys.h"
#include "os/file_system.h"
#include "os/new_file.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

constexpr std::uint64_t kKeyFileMax = 1u << 16;
constexpr std::size_t kPiece = 1u << 20;

struct SignFlags {
  std::string generate, key, name, version, sha256, archive;
};

Status generate(const std::string& path) {
  const codec::Ed25519PrivateKey key = codec::Ed25519PrivateKey::generate();
  TRY(os::NewFile file, os::NewFile::create(path));
  TRY_VOID(file.write(key.pem()));
  TRY_VOID(file.keep());
  std::fprintf(stderr, "private key in %s; public key, a line for --model-keys:\n", path.c_str());
  std::printf("%s\n", key.public_key().base64().c_str());
  return {};
}

Result<codec::Sha256> digest_of(const Context& ctx, const std::string& path) {
  TRY(const auto file, os::real_file_system().open(followed(path), os::Open::kRead));
  codec::Sha256Stream digest;
  while (true) {
    TRY_VOID(ctx.check());
    TRY(const std::string piece, file->read(kPiece));
    if (piece.empty()) return digest.finish();
    digest.update(piece);
  }
}

Status sign(const Context& ctx, const SignFlags& flags) {
  TRY(const std::string pem,
      os::read_file(os::real_file_system(), followed(flags.key), kKeyFileMax));
  TRY(const codec::Ed25519PrivateKey key,
      codec::Ed25519PrivateKey::from_pem(pem).context(flags.key));
  TRY(const codec::Sha256 digest,
      flags.archive.empty() ? codec::Sha256::parse(flags.sha256) : digest_of(ctx, flags.archive));
  const std::string hex = digest.hex();
  const std::string line =
      hosting::SignedVersion{.model = flags.name, .version = flags.version, .sha256 = hex}.line();
  std::printf("%s\n", codec::base64(key.sign(line)).c_str());
  return {};
}

}  // namespace

void add_sign_command(Program program) {
  const auto flags = std::make_shared<SignFlags>();
  CLI::App* command = program.parser.add_subcommand(
      "sign", "print the signature of a model version, or make a key that signs");
  CLI::Option* made = command->add_option(
      "--generate", flags->generate,
      "make a key: write the private key to this new file, and print the public key");
  CLI::Option* key =
      command->add_option("--key", flags->key, "PEM file with a private key of Ed25519");
  command->add_option("--name", flags->name,
                      "spec.modelName of the InferenceModel, or metadata.name of the Model");
  command->add_option("--version", flags->version, "name of the version");
  CLI::Option* digest = command->add_option("--sha256", flags->sha256,
                                            "SHA-256 of the archive, 64 hexadecimal digits");
  CLI::Option* archive = command->add_option("archive", flags->archive, "the archive");
  for (CLI::Option* other : {key, digest, archive}) made->excludes(other);
  digest->excludes(archive);
  command->callback([&chosen = program.chosen, flags] {
    if (flags->generate.empty() &&
        (flags->key.empty() || flags->name.empty() || flags->version.empty()))
      throw CLI::ValidationError("sign", "needs --generate, or --key, --name and --version");
    if (flags->generate.empty() && flags->sha256.empty() && flags->archive.empty())
      throw CLI::ValidationError("sign", "needs --sha256 or an archive");
    chosen = [flags](const Context& ctx) {
      return flags->generate.empty() ? sign(ctx, *flags) : generate(flags->generate);
    };
  });
}

}  // namespace varda::app
