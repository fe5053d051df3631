//! `core`'s atomics with a hook before each operation, for those who look at what threads do.

/// As [`core::sync::atomic`]: `$load` is called before what only loads, `$store` before all else, each with the address.
macro_rules! wrapped_atomics {
    (load: $load:path, store: $store:path) => {
        pub use core::sync::atomic::{Ordering, fence};

        integers!($load, $store; AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize, AtomicI64 i64);
        wrapped!($load, $store; AtomicBool, bool);
        with_bits!($store; AtomicBool, bool, fetch_and, fetch_or, fetch_xor);
        wrapped!($load, $store; AtomicPtr<T>, *mut T);
    };
}

macro_rules! integers {
    ($load:path, $store:path; $($name:ident $value:ty),+) => {
        $(wrapped!($load, $store; $name, $value);
        with_bits!($store; $name, $value, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);)+
    };
}

macro_rules! wrapped {
    ($load:path, $store:path; $name:ident $(<$of:ident>)?, $value:ty) => {
        /// `core`'s, with a hook before each operation.
        #[repr(transparent)]
        #[derive(Debug)]
        pub struct $name $(<$of>)? (core::sync::atomic::$name $(<$of>)?);

        #[allow(missing_docs, dead_code)]
        impl $(<$of>)? $name $(<$of>)? {
            pub const fn new(value: $value) -> Self {
                Self(core::sync::atomic::$name::new(value))
            }
            fn address(&self) -> usize {
                core::ptr::from_ref(self).addr()
            }
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
            /// What it holds, without the hook.
            pub(super) fn unobserved(&self) -> $value {
                self.0.load(Ordering::Relaxed)
            }
            pub fn load(&self, order: Ordering) -> $value {
                $load(self.address());
                self.0.load(order)
            }
            pub fn store(&self, value: $value, order: Ordering) {
                $store(self.address());
                self.0.store(value, order)
            }
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                $store(self.address());
                self.0.swap(value, order)
            }
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                $store(self.address());
                self.0.compare_exchange(current, new, success, failure)
            }
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! with_bits {
    ($store:path; $name:ident, $value:ty, $($operation:ident),+) => {
        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }

        #[allow(missing_docs, dead_code)]
        impl $name {
            $(pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                $store(self.address());
                self.0.$operation(value, order)
            })+
        }
    };
}
