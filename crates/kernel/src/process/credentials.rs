//! Who a task acts as.

use alloc::sync::Arc;

use super::user_namespace::{Ids, UserNamespace};

/// User and group ids (credentials(7)).
#[derive(Clone, Debug)]
pub struct Credentials {
    pub uid: u32,
    pub euid: u32,
    pub suid: u32,
    pub fsuid: u32,
    pub gid: u32,
    pub egid: u32,
    pub sgid: u32,
    pub fsgid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Where its capabilities count.
    pub user_namespace: Arc<UserNamespace>,
    /// Effective, permitted, inheritable capabilities.
    pub capabilities: Capabilities,
    /// How they follow the ids (`PR_SET_SECUREBITS`).
    pub secure_bits: u32,
}

/// Capability sets, as bits (capabilities(7)). What concerns memory asks them ([`Credentials::may`]); all else, [`Credentials::is_privileged`].
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    pub effective: u64,
    pub permitted: u64,
    pub inheritable: u64,
    /// What exec may give at most.
    pub bounding: u64,
    /// What exec keeps without set-id bits.
    pub ambient: u64,
}

/// Bits of [`Credentials::secure_bits`] (`linux/securebits.h`): root's ids give nothing; changes of ids take nothing; what is permitted stays when they
/// do; nothing is added to the ambient set. The bit above each locks it.
pub const NO_ROOT: u32 = 1 << 0;
pub const NO_SETUID_FIXUP: u32 = 1 << 2;
pub const KEEP_CAPS: u32 = 1 << 4;
pub const NO_AMBIENT_RAISE: u32 = 1 << 6;
/// All of them, and their locks.
pub const SECURE_BITS: u32 = 0xff;
/// The locks.
pub const SECURE_LOCKS: u32 = 0xaa;

/// Last capability of Linux 6.18 (`CAP_LAST_CAP`).
pub const LAST_CAPABILITY: u64 = 40;

/// Every capability of Linux 6.18: `CAP_LAST_CAP` is 40.
pub const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

/// `CAP_CHOWN`: to give files away.
pub const CAP_CHOWN: u32 = 0;
/// `CAP_DAC_OVERRIDE`: to do with files what their bits do not allow.
pub const CAP_DAC_OVERRIDE: u32 = 1;
/// `CAP_FOWNER`: to do what is for owners.
pub const CAP_FOWNER: u32 = 3;
/// `CAP_KILL`: to send signals to anybody.
pub const CAP_KILL: u32 = 5;
/// `CAP_SETGID`, `CAP_SETUID`: to become somebody else.
pub const CAP_SETGID: u32 = 6;
pub const CAP_SETUID: u32 = 7;
/// `CAP_NET_BIND_SERVICE`: to have the lowest ports.
pub const CAP_NET_BIND_SERVICE: u32 = 10;
/// `CAP_IPC_OWNER`: to use others' System V objects.
pub const CAP_IPC_OWNER: u32 = 15;
/// `CAP_SYS_CHROOT`: to have another root.
pub const CAP_SYS_CHROOT: u32 = 18;
/// `CAP_SETFCAP`: to give files capabilities.
pub const CAP_SETFCAP: u32 = 31;
/// `CAP_SETPCAP`: to change what a process may have at most.
pub const CAP_SETPCAP: u32 = 8;
/// `CAP_NET_ADMIN`: to change interfaces.
pub const CAP_NET_ADMIN: u32 = 12;
/// `CAP_IPC_LOCK` (`linux/capability.h`): to lock memory without limit.
pub const CAP_IPC_LOCK: u32 = 14;
/// `CAP_SYS_RAWIO`: to map the lowest addresses.
pub const CAP_SYS_RAWIO: u32 = 17;
/// `CAP_SYS_PTRACE`: to look into any process.
pub const CAP_SYS_PTRACE: u32 = 19;

/// `CAP_SYS_ADMIN`.
pub const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_SYS_NICE`: to influence how others run.
pub const CAP_SYS_NICE: u32 = 23;
/// `CAP_SYS_RESOURCE`: to raise limits.
pub const CAP_SYS_RESOURCE: u32 = 24;
/// `CAP_SYS_BOOT`: to restart or halt.
pub const CAP_SYS_BOOT: u32 = 22;

/// `CAP_SYS_TIME`: to set clocks.
pub const CAP_SYS_TIME: u32 = 25;
/// `CAP_CHECKPOINT_RESTORE`: to make a process what another was.
pub const CAP_CHECKPOINT_RESTORE: u32 = 40;

impl Credentials {
    /// Whether a capability is effective for the whole machine.
    pub fn may(&self, capability: u32) -> bool {
        self.user_namespace.is_first() && self.may_here(capability)
    }

    /// Whether a capability is effective in its own namespace.
    pub fn may_here(&self, capability: u32) -> bool {
        self.capabilities.effective & (1 << capability) != 0
    }

    /// Who is root in its own namespace, if anybody is.
    fn root_id(&self) -> Option<u32> {
        self.user_namespace.id_of(Ids::Users, 0)
    }

    /// Root.
    pub fn root() -> Credentials {
        Credentials {
            uid: 0,
            euid: 0,
            suid: 0,
            fsuid: 0,
            gid: 0,
            egid: 0,
            sgid: 0,
            fsgid: 0,
            groups: Arc::new([]),
            user_namespace: UserNamespace::first().clone(),
            capabilities: Capabilities {
                effective: ALL_CAPABILITIES,
                permitted: ALL_CAPABILITIES,
                inheritable: 0,
                bounding: ALL_CAPABILITIES,
                ambient: 0,
            },
            secure_bits: 0,
        }
    }

    /// Whether both act as the same user and group.
    pub fn acts_as(&self, other: &Credentials) -> bool {
        let ids = |of: &Credentials| [of.euid, of.egid, of.fsuid, of.fsgid];
        ids(self) == ids(other)
    }

    /// Whether it may do what only root may.
    pub fn is_privileged(&self) -> bool {
        self.euid == 0 && self.user_namespace.is_first()
    }

    /// Adjusts the capabilities after a change of user ids (capabilities(7), "Effect of user ID changes").
    pub fn user_ids_changed(&mut self, before: &Credentials) {
        if self.secure_bits & NO_SETUID_FIXUP != 0 {
            return;
        }
        let root = self.root_id();
        let is_root = |id: u32| Some(id) == root;
        let had_root = [before.uid, before.euid, before.suid].into_iter().any(is_root);
        let has_root = [self.uid, self.euid, self.suid].into_iter().any(is_root);
        if had_root && !has_root {
            self.capabilities.ambient = 0;
            if self.secure_bits & KEEP_CAPS == 0 {
                self.capabilities.permitted = 0;
                self.capabilities.effective = 0;
            }
        }
        if is_root(before.euid) && !is_root(self.euid) {
            self.capabilities.effective = 0;
        } else if !is_root(before.euid) && is_root(self.euid) {
            self.capabilities.effective = self.capabilities.permitted;
        }
    }

    /// Adjusts the capabilities for a new program (capabilities(7), "Transformation of capabilities during execve()"; files have none here). `gains`:
    /// set-id bits made it somebody else.
    pub fn program_changed(&mut self, gains: bool) {
        let root_id = self.root_id();
        let sets = &mut self.capabilities;
        if gains {
            sets.ambient = 0;
        }
        let root = self.secure_bits & NO_ROOT == 0;
        sets.permitted = match root && [self.euid, self.uid].into_iter().any(|id| Some(id) == root_id) {
            true => sets.inheritable | sets.bounding,
            false => sets.ambient,
        };
        sets.effective = if root && Some(self.euid) == root_id { sets.permitted } else { sets.ambient };
        self.secure_bits &= !KEEP_CAPS;
    }
}
