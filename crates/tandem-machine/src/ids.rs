//! Typed indices into the flat arrays of a machine or a scenario.

macro_rules! typed_index {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the array that this index belongs to.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                Self(u32::try_from(index).expect("indices stay below 2^32"))
            }
        }
    )*};
}

typed_index! {
    /// A logical CPU of one kernel: a pCPU for the host. Dense; not the operating system's number.
    CpuId;
    /// A core: one or more SMT threads.
    CoreId;
    /// A last-level cache.
    LlcId;
    /// A NUMA node.
    NodeId;
    /// A package (socket).
    PackageId;
    /// A task of one kernel; in the host kernel a vCPU.
    TaskId;
    /// A virtual machine, or processes or threads of the host that belong together as those of one do.
    VmId;
    /// A kernel: 0 is the host's, those of the guests follow.
    KernelId;
}

impl KernelId {
    /// The host's kernel.
    pub const HOST: Self = Self(0);
}
