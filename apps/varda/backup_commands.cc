// backup: saves a data directory in one file, while `varda up` runs or not. restore: makes a data
// directory from such a file.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

#include "command.h"
#include "datadir/backup_file.h"
#include "datadir/data_directory.h"
#include "kube/config.h"
#include "net/client.h"
#include "os/file_system.h"
#include "os/new_file.h"
#include "progress.h"
#include "store/snapshot.h"

namespace varda::app {
namespace {

namespace fs = std::filesystem;

struct BackupFlags {
  std::string data_dir, file;
  bool credentials = false;
};

/// Returns the next bytes of a backup; nothing at the end.
using Pieces = std::function<Result<std::optional<std::string>>()>;

// Resolves links and a trailing slash: restore() makes a directory beside the data directory and
// renames it.
Result<fs::path> directory_of(const BackupFlags& flags) {
  TRY(const fs::path named, data_dir_of(flags.data_dir));
  std::error_code unknown;
  const fs::path real =
      fs::weakly_canonical(named.has_filename() ? named : named.parent_path(), unknown);
  return unknown ? named : real;
}

Error unreadable(const std::string& file, int reason) {
  return Error(reason == ENOENT ? Code::kNotFound : Code::kInternal,
               "cannot read the backup " + file + ": " + std::strerror(reason));
}

// Gets the backup from the server that has the store open.
Result<Pieces> request_backup(const Context& ctx, const fs::path& data_dir, bool credentials) {
  TRY(const kube::Config config, kube::load_kubeconfig(data_dir / "kubeconfig"));
  net::ClientOptions transport;
  transport.tls = config.tls;
  const std::shared_ptr<net::HttpClient> client = net::make_client(std::move(transport));
  net::ClientRequest request{.url = config.server + "/backup" +
                                    (credentials ? "?credentials=true" : "")};
  request.headers.add("Authorization", "Bearer " + config.token);
  auto sent = client->send(ctx, std::move(request));
  if (!sent.ok())
    return std::move(sent).error().context("the server of " + data_dir.string() +
                                           " has the store open but does not answer");
  const auto answer = std::make_shared<net::ClientResponse>(std::move(sent).value());
  if (answer->status == 404) {
    return Error(Code::kUnsupported, "the server that has the store of " + data_dir.string() +
                                         " open is not `varda up`: stop it first");
  }
  if (answer->status != 200) {
    auto text = answer->body->read();
    return Error(Code::kInternal, "the server of " + data_dir.string() + " answered " +
                                      std::to_string(answer->status) + ": " +
                                      (text.ok() ? text->value_or("") : ""));
  }
  return Pieces([client, answer]() { return answer->body->read(); });
}

Result<Pieces> open_pieces(const Context& ctx, const fs::path& data_dir, bool credentials) {
  TRY(const auto existing, os::real_file_system().stat(data_dir / "store.db"));
  if (!existing) return no_data_directory(data_dir);
  auto page = store::read_sqlite(data_dir / "store.db");
  if (!page.ok() && page.error().code() == Code::kUnavailable)
    return request_backup(ctx, data_dir, credentials);
  TRY(store::Page all, std::move(page));
  TRY(auto made,
      datadir::BackupMaker::create({.data_dir = data_dir,
                                    .credentials = credentials ? datadir::Credentials::kInclude
                                                               : datadir::Credentials::kLeaveOut},
                                   std::move(all)));
  return Pieces(
      [maker = std::shared_ptr<datadir::BackupMaker>(std::move(made))]() { return maker->next(); });
}

Status write_all(const Context& ctx, const Pieces& pieces, const std::string& title,
                 const std::function<Status(std::string_view)>& to) {
  ProgressBar bar(title);
  std::uint64_t bytes = 0;
  for (;;) {
    TRY_VOID(ctx.check());
    TRY(const std::optional<std::string> piece, pieces());
    if (!piece) return {};
    TRY_VOID(to(*piece));
    bytes += piece->size();
    bar.update("saving", bytes, 0);
  }
}

// Standard output cannot be read back, so the bytes are checked on their way.
Status write_checked(const Context& ctx, const Pieces& pieces) {
  const auto pass = [&]() -> Result<std::string> {
    TRY_VOID(ctx.check());
    TRY(const std::optional<std::string> piece, pieces());
    if (!piece) return std::string();
    if (std::fwrite(piece->data(), 1, piece->size(), stdout) != piece->size() ||
        std::fflush(stdout) != 0)
      return Error(Code::kExhausted, "cannot write to standard output");
    return *piece;
  };
  TRY_VOID(datadir::check_backup(pass).context("standard output"));
  for (;;) {  // the end of the archive, behind the sums
    TRY(const std::string last_piece, pass());
    if (last_piece.empty()) return {};
  }
}

Status back_up(const Context& ctx, const BackupFlags& flags) {
  TRY(const fs::path data_dir, directory_of(flags));
  if (flags.file == "-") {
    if (isatty(STDOUT_FILENO))
      return Error(
          Code::kInvalid,
          "standard output is a terminal, and a backup is binary; name a file, or use a pipe");
    TRY(const Pieces pieces, open_pieces(ctx, data_dir, flags.credentials));
    return write_checked(ctx, pieces);
  }
  TRY(os::NewFile file, os::NewFile::create(flags.file));
  TRY(const Pieces pieces, open_pieces(ctx, data_dir, flags.credentials));
  TRY_VOID(write_all(ctx, pieces, flags.file,
                     [&file](std::string_view bytes) { return file.write(bytes); }));
  TRY(const datadir::BackupInfo info,
      datadir::check_backup([&file] { return file.read(); }).context(flags.file));
  TRY_VOID(file.keep());
  std::printf("%s holds %llu objects at revision %lld%s\n", flags.file.c_str(),
              static_cast<unsigned long long>(info.objects), static_cast<long long>(info.revision),
              info.credentials ? ", with credentials" : "");
  return {};
}

Status restore(const Context& ctx, const BackupFlags& flags) {
  TRY(const fs::path data_dir, directory_of(flags));
  const bool input = flags.file == "-";
  const int fd = input ? STDIN_FILENO : ::open(flags.file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return unreadable(flags.file, errno);
  const std::shared_ptr<void> closing(nullptr, [fd, input](void*) {
    if (!input) ::close(fd);
  });
  ProgressBar bar(flags.file);
  std::uint64_t bytes = 0;
  const auto source = [&]() -> Result<std::string> {
    TRY_VOID(ctx.check());
    std::string piece(64 << 10, '\0');
    ssize_t count = 0;
    do {
      count = ::read(fd, piece.data(), piece.size());
    } while (count < 0 && errno == EINTR && ctx.check().ok());
    if (count < 0) return unreadable(flags.file, errno);
    piece.resize(static_cast<std::size_t>(count));
    bytes += piece.size();
    bar.update("restoring", bytes, 0);
    return piece;
  };
  TRY(const datadir::BackupInfo info,
      datadir::restore_backup(source, data_dir).context(flags.file));
  bar.clear();
  std::printf(
      "%s holds the %llu objects of %s (revision %lld); `varda up --data-dir %s` starts it\n",
      data_dir.c_str(), static_cast<unsigned long long>(info.objects), info.created.c_str(),
      static_cast<long long>(info.revision), data_dir.c_str());
  return {};
}

}  // namespace

void add_backup_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  const auto flags = std::make_shared<BackupFlags>();
  const auto set = [&](CLI::App* command, Status (*run)(const Context&, const BackupFlags&)) {
    command->callback([&chosen, &globals, flags, run] {
      chosen = [&globals, flags, run](const Context& ctx) -> Status {
        TRY_VOID(set_up_logs(globals, log::Level::kWarn));
        return run(ctx, *flags);
      };
    });
  };
  CLI::App* backup = program.parser.add_subcommand(
      "backup", "save every object of `varda up` in a file, whether the server runs or not");
  backup->add_option("FILE", flags->file, "must not exist yet; -: standard output")->required();
  backup->add_option("--data-dir", flags->data_dir,
                     "data directory of `varda up`; default: $XDG_DATA_HOME/varda");
  backup->add_flag("--with-credentials", flags->credentials,
                   "include keys and tokens, so that existing kubeconfigs stay valid; protect the "
                   "file like the keys");
  set(backup, back_up);
  CLI::App* restoring = program.parser.add_subcommand(
      "restore", "create a data directory from the file of `varda backup`");
  restoring->add_option("FILE", flags->file, "the backup; -: standard input")->required();
  restoring->add_option("--data-dir", flags->data_dir,
                        "must be empty or not exist yet; default: $XDG_DATA_HOME/varda");
  set(restoring, restore);
}

}  // namespace varda::app
